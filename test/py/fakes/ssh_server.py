"""An SSH server in this process, with real handshakes and an SFTP server on real files."""

import contextlib
import os
import socket
import threading

import paramiko


class Account(paramiko.ServerInterface):
    """Rules of the server, and a record of what clients did.

    ``commands`` maps a command line to (code, stdout, stderr), or to a function of the
    standard input that returns this; a command that is not listed is refused.
    """

    def __init__(self, *, keys=(), password=None, commands=None):
        self.keys = [key.asbytes() for key in keys]
        self.password = password
        self.commands = dict(commands or {})
        self.logins = []
        self.ran = []

    def get_allowed_auths(self, _user):
        return "publickey,password"

    def check_auth_publickey(self, user, key):
        return self._login("key", user, key.asbytes() in self.keys)

    def check_auth_password(self, user, password):
        return self._login("password", user, password == self.password)

    def _login(self, how, user, is_good):
        self.logins.append((how, user, is_good))
        return paramiko.AUTH_SUCCESSFUL if is_good else paramiko.AUTH_FAILED

    def check_channel_request(self, _kind, _number):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        line = command.decode()
        if line not in self.commands:
            return False
        thread = threading.Thread(
            target=self._execute, args=(channel, line), daemon=True
        )
        thread.start()
        return True

    def _execute(self, channel, line):
        answer = self.commands[line]
        # The end of the input comes after the client has read that the command began.
        data = b""
        while part := channel.recv(65536):
            data += part
        if callable(answer):
            answer = answer(data)
        self.ran.append((line, data))
        if answer is None:
            return  # it hangs
        code, stdout, stderr = answer
        # The client may hang up, which the library also reports as the end of a file.
        with contextlib.suppress(OSError, EOFError), contextlib.closing(channel):
            channel.sendall(stdout)
            channel.sendall_stderr(stderr)
            channel.send_exit_status(code)


class Handle(paramiko.SFTPHandle):
    def chattr(self, attr):
        os.fchmod(self.writefile.fileno(), attr.st_mode)
        return paramiko.SFTP_OK


class Sftp(paramiko.SFTPServerInterface):
    """Files below this machine's root."""

    def open(self, path, flags, _attr):
        try:
            fd = os.open(path, flags, 0o666)
        except OSError as err:
            return paramiko.SFTPServer.convert_errno(err.errno)
        handle = Handle(flags)
        handle.filename = path
        handle.readfile = handle.writefile = os.fdopen(fd, "wb")
        return handle

    def posix_rename(self, old, new):
        os.rename(old, new)
        return paramiko.SFTP_OK


class Server:
    """A context manager; ``port`` is where it listens."""

    def __init__(self, host_key, account, *, port=0):
        self.host_key, self.account = host_key, account
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self._transports = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for transport in self._transports:
            transport.close()

    def drop(self):
        """Break all connections."""
        for transport in self._transports:
            transport.close()

    def _serve(self):
        while True:
            try:
                sock, _peer = self._socket.accept()
            except OSError:
                return
            transport = paramiko.Transport(sock)
            transport.add_server_key(self.host_key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, Sftp)
            self._transports.append(transport)
            try:
                transport.start_server(server=self.account)
            except (paramiko.SSHException, EOFError, OSError):
                transport.close()  # the client went away
