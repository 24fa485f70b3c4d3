"""The OS definition ``image``: real images, a real server on loopback, real qemu-img."""

import contextlib
import hashlib
import http.server
import os
import pathlib
import re
import ssl
import struct
import subprocess
import threading

import pytest

from ganeti.base import pathutils
from ganeti.base.process import SAFE_PATH
from ganeti.base.tls import x509
from ganeti.tools.os_image import main, sources

MIB = 1 << 20
DEFINITION = pathlib.Path(__file__).parents[5] / "tools/os/image"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Return the root directory of a virtual node with an image directory."""
    root = tmp_path / "n1"
    (root / "srv/ganeti/images").mkdir(parents=True)
    (root / "etc/ganeti").mkdir(parents=True)
    for name in [n for n in os.environ if n.startswith(("OSP_", "DISK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GANETI_ROOTDIR", str(root))
    monkeypatch.setenv("GANETI_HOSTNAME", "n1")
    monkeypatch.setenv("PATH", SAFE_PATH)
    disk = root / "disk0"
    disk.write_bytes(b"\xff" * 4 * MIB)
    monkeypatch.setenv("DISK_0_PATH", str(disk))
    monkeypatch.setenv("DISK_0_SIZE", "4")
    return root


def wanted(monkeypatch, data=None, **params):
    if data is not None:
        params.setdefault("sha256", hashlib.sha256(data).hexdigest())
    for name, value in params.items():
        monkeypatch.setenv(f"OSP_{name.upper()}", value)


def qcow2(path, *options, size=2 * MIB, content=b""):
    """Make an image and return its bytes."""
    raw = path.with_suffix(".raw")
    raw.write_bytes(content.ljust(size, b"\0"))
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options]
    subprocess.run([*command, raw, path], check=True)
    raw.unlink()
    return path.read_bytes()


def run(capsys, script, *more):
    code = main.main([script, *more])
    return code, capsys.readouterr().err


def test_an_image_of_the_node_becomes_the_disk(node, monkeypatch, capsys):
    data = qcow2(node / "srv/ganeti/images/a.qcow2", "-c", content=b"boot me")
    wanted(monkeypatch, data, file="/srv/ganeti/images/a.qcow2")
    assert run(capsys, "verify", "parameters") == (0, "")
    code, output = run(capsys, "create")
    assert code == 0, output
    assert "wrote 100 % of the image" in output
    disk = (node / "disk0").read_bytes()
    # The image's empty parts are zeros, the rest of the disk stays.
    assert disk[:7] == b"boot me"
    assert disk[7 : 2 * MIB] == bytes(2 * MIB - 7)
    assert disk[2 * MIB :] == b"\xff" * 2 * MIB


def test_a_raw_image_with_sha512(node, monkeypatch, capsys):
    data = b"raw" + bytes(MIB - 3)
    (node / "srv/ganeti/images/a.img").write_bytes(data)
    wanted(monkeypatch, file="/srv/ganeti/images/a.img", format="raw")
    monkeypatch.setenv("OSP_SHA512", hashlib.sha512(data).hexdigest().upper())
    assert run(capsys, "create")[0] == 0
    assert (node / "disk0").read_bytes()[:MIB] == data


def test_the_image_of_os_image_needs_no_checksum(node, monkeypatch, capsys):
    data = b"raw" + bytes(MIB - 3)
    (node / "srv/ganeti/images/a.img").write_bytes(data)
    wanted(monkeypatch, os_image="/srv/ganeti/images/a.img")
    assert run(capsys, "verify", "parameters") == (0, "")
    assert run(capsys, "create")[0] == 0
    assert (node / "disk0").read_bytes()[:MIB] == data
    # One that is given counts.
    wanted(monkeypatch, b"other")
    code, output = run(capsys, "create")
    assert code == 1
    assert "sha256: wanted" in output


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"os_image": "/etc/shadow"}, "not among the sources of this node"),
        ({"os_image": "http://x/y"}, "not among the sources of this node"),
        ({"os_image": "ftp://x/y"}, "wanted https:// or http:// and a host"),
        ({"os_image": "https://x/y"}, "sha256 or sha512, or its server in .*-sources"),
        ({"os_image": "/a", "url": "https://x"}, "wanted one of .* url and file"),
        ({"os_image": "https://x", "url": "https://y", "sha256": "0" * 64}, "url and"),
        ({"os_image": "/a", "file": "/b", "sha256": "0" * 64}, "url and file"),
        ({"file": "/srv/ganeti/images/a"}, "wanted the OS parameter sha256"),
    ],
)
def test_other_images_of_os_image_are_refused(node, monkeypatch, capsys, params, text):
    wanted(monkeypatch, **params)
    code, output = run(capsys, "verify", "parameters")
    assert code == 1
    assert re.search(text, output), output


class Server(http.server.BaseHTTPRequestHandler):
    """Serves one body; ``/moved`` leads elsewhere."""

    body = b""
    target = ""

    def do_GET(self):
        self.path = self.path.partition("?")[0]
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", self.target)
            self.end_headers()
            return
        self.send_response(200 if self.path == "/a.img" else 404)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        # A client that has seen enough closes the connection.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(self.body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    handler = type("Handler", (Server,), {})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as made:
        made.base = f"http://127.0.0.1:{made.server_port}"
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def allow(node, *lines):
    (node / "etc/ganeti/image-sources").write_text("".join(f"{n}\n" for n in lines))


@pytest.mark.parametrize("page", ["a.img", "moved"])
def test_an_image_is_downloaded(node, server, monkeypatch, capsys, page):
    handler = server.RequestHandlerClass
    handler.body, handler.target = b"net" + bytes(MIB - 3), f"{server.base}/a.img"
    allow(node, "# mirrors", "", server.base)
    wanted(monkeypatch, handler.body, url=f"{server.base}/{page}", format="raw")
    assert run(capsys, "verify", "parameters") == (0, "")
    code, output = run(capsys, "create")
    assert code == 0, output
    assert "downloaded 1048576 bytes, checksum is right" in output
    assert (node / "disk0").read_bytes()[:MIB] == handler.body


@pytest.mark.parametrize(
    ("page", "size", "text"),
    [
        ("none", MIB, "404"),
        ("a.img", 70 * MIB, "wanted at most 71303168 bytes, found more"),
        ("a.img", MIB, "sha256: wanted"),
        ("moved", MIB, "file"),
    ],
)
def test_a_bad_download_leaves_the_disk_alone(
    node, server, monkeypatch, capsys, page, size, text
):
    handler = server.RequestHandlerClass
    handler.body, handler.target = bytes(size), "file:///etc/passwd"
    allow(node, server.base)
    url = f"{server.base}/{page}"
    wanted(monkeypatch, b"other", url=f"{url}?token=secret", format="raw")
    before = open_files()
    code, output = run(capsys, "create")
    assert code == 1
    assert f"image {url}?...: " in output
    assert text in output.lower()
    assert "secret" not in output
    assert (node / "disk0").read_bytes() == b"\xff" * 4 * MIB
    assert open_files() == before


def test_without_a_checksum_the_server_itself_sends_the_image(
    node, server, monkeypatch, capsys
):
    handler = server.RequestHandlerClass
    handler.body, handler.target = b"net" + bytes(MIB - 3), f"{server.base}/a.img"
    allow(node, "http://")
    wanted(monkeypatch, os_image=f"{server.base}/a.img")
    code, output = run(capsys, "create")
    assert code == 1
    assert "or its server in" in output
    allow(node, "http://", server.base)
    assert run(capsys, "create")[0] == 0
    assert (node / "disk0").read_bytes()[:MIB] == handler.body
    (node / "disk0").write_bytes(b"\xff" * 4 * MIB)
    wanted(monkeypatch, os_image=f"{server.base}/moved")
    code, output = run(capsys, "create")
    assert code == 1
    assert "redirect" in output
    assert (node / "disk0").read_bytes() == b"\xff" * 4 * MIB


@pytest.fixture
def tls_server(server, node):
    """Let the server speak TLS, with the certificate ``server.pem`` of localhost."""
    pair = x509.create_self_signed("localhost")
    path = node / "server.pem"
    path.write_bytes(x509.key_pem(pair.key) + x509.certificate_pem(pair.certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    handler = server.RequestHandlerClass
    handler.body = b"net" + bytes(MIB - 3)
    allow(node, "https://")
    return server


def test_an_image_is_downloaded_with_tls(node, tls_server, monkeypatch, capsys):
    monkeypatch.setenv("SSL_CERT_FILE", str(node / "server.pem"))
    body = tls_server.RequestHandlerClass.body
    url = f"https://localhost:{tls_server.server_port}/a.img?token=secret"
    wanted(monkeypatch, body, url=url, format="raw")
    code, output = run(capsys, "create")
    assert code == 0, output
    assert f"writing https://localhost:{tls_server.server_port}/a.img?... to" in output
    assert "secret" not in output
    assert (node / "disk0").read_bytes()[:MIB] == body


@pytest.mark.parametrize(
    ("host", "is_trusted"), [("localhost", False), ("127.0.0.1", True)]
)
def test_a_server_without_a_good_certificate_gives_no_image(
    node, tls_server, monkeypatch, capsys, host, is_trusted
):
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(node / "server.pem"))
    url = f"https://{host}:{tls_server.server_port}/a.img"
    wanted(monkeypatch, tls_server.RequestHandlerClass.body, url=url, format="raw")
    code, output = run(capsys, "create")
    assert code == 1
    assert f"image {url}: SSL" in output
    assert (node / "disk0").read_bytes() == b"\xff" * 4 * MIB


def open_files():
    """Return the open files of this process, without sockets of the server."""
    paths = []
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            paths.append(os.readlink(entry.path))
    return sorted(path for path in paths if path.startswith("/"))


def secret(node):
    path = node / "secret"
    path.write_bytes(b"root:hash".ljust(MIB, b"\0"))
    return path


def with_backing(node, path):
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b"]
    subprocess.run([*command, secret(node), path], check=True)


def with_data_file(node, path):
    # Made complete, then given the name of another file.
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-o"]
    option = f"data_file={node}/data,data_file_raw=on"
    subprocess.run([*command, option, path, "1M"], check=True)


def with_field(offset, form, value):
    def make(node, path):
        data = bytearray(qcow2(path))
        struct.pack_into(form, data, offset, value)
        path.write_bytes(data)

    return make


def text_file(node, path):
    path.write_bytes(b"no image")


def cut(node, path):
    path.write_bytes(qcow2(path, content=b"x" * MIB)[:40])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (with_backing, "names a backing file"),
        (with_data_file, "names an external data file"),
        (with_field(8, ">Q", 1 << 40), "names a backing file"),
        (with_field(4, ">I", 9), "qcow2 version 9"),
        (with_field(32, ">I", 2), "is encrypted"),
        (with_field(72, ">Q", 1 << 5), "incompatible features 0x20"),
        (with_field(24, ">Q", 1 << 40), "needs a disk of 1048576 MiB"),
        (with_field(20, ">I", 63), "qemu-img info: exited with code 1"),
        (text_file, "is not a qcow2 image"),
        (cut, "is not a qcow2 image"),
    ],
)
def test_a_hostile_image_is_refused(node, monkeypatch, capsys, make, text):
    path = node / "srv/ganeti/images/a.qcow2"
    make(node, path)
    wanted(monkeypatch, path.read_bytes(), file="/srv/ganeti/images/a.qcow2")
    code, output = run(capsys, "create")
    assert code == 1
    assert text in output
    assert (node / "disk0").read_bytes() == b"\xff" * 4 * MIB


def test_a_raw_image_that_is_a_qcow2_one_is_refused(node, monkeypatch, capsys):
    data = qcow2(node / "srv/ganeti/images/a")
    wanted(monkeypatch, data, file="/srv/ganeti/images/a", format="raw")
    code, output = run(capsys, "create")
    assert (code, "format is raw" in output) == (1, True)


def test_an_image_larger_than_the_disk_is_refused(node, monkeypatch, capsys):
    data = qcow2(node / "srv/ganeti/images/a", size=5 * MIB)
    wanted(monkeypatch, data, file="/srv/ganeti/images/a")
    code, output = run(capsys, "create")
    assert code == 1
    assert "needs a disk of 5 MiB, but disk 0 of the instance has 4 MiB" in output


SUM = "0" * 64


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "url and file, or os-image alone, found none"),
        ({"url": "https://a", "file": "/b"}, "found more"),
        ({"file": "srv/a"}, "wanted an absolute path"),
        ({"file": "/srv/ganeti/images/a"}, "sha256 or sha512"),
        ({"file": "/srv/a", "sha256": "12"}, "wanted 64 hexadecimal digits"),
        ({"file": "/srv/a", "sha256": SUM, "format": "vmdk"}, "qcow2 or raw"),
        ({"url": "https://a/ b", "sha256": SUM}, "without spaces"),
        ({"file": "/etc/passwd", "sha256": SUM}, "not among the sources"),
        ({"file": "/srv/ganeti/images/../x", "sha256": SUM}, "not among the sources"),
        ({"file": "/srv/ganeti/images/link", "sha256": SUM}, "not among the sources"),
        ({"file": "/srv/ganeti/images/none", "sha256": SUM}, "cannot be read"),
        ({"file": "/srv/ganeti/images/pipe", "sha256": SUM}, "a regular file"),
        ({"url": "http://a/b", "sha256": SUM}, "not among the sources"),
        ({"url": "file:///etc/passwd", "sha256": SUM}, "https:// or http://"),
        ({"url": "https://u:p@a/b", "sha256": SUM}, "no user name"),
        ({"url": "https://a:99999/b", "sha256": SUM}, "Port out of range"),
    ],
)
def test_wrong_parameters(node, monkeypatch, capsys, params, text):
    images = node / "srv/ganeti/images"
    (images / "link").symlink_to("/etc/passwd")
    os.mkfifo(images / "pipe")
    wanted(monkeypatch, **params)
    for script in (["verify", "parameters"], ["create"]):
        code, output = run(capsys, *script)
        assert code == 1
        assert text in output
        assert "u:p" not in output


@pytest.mark.parametrize(
    ("entry", "url", "is_allowed"),
    [
        ("https://", "https://any.example/x", True),
        ("https://", "http://any.example/x", False),
        ("https://a.example/b", "https://a.example/b/c.img", True),
        ("https://a.example/b/", "https://a.example:443/b/c.img", True),
        ("https://a.example/b", "https://a.example/bad.img", False),
        ("https://a.example/b", "https://a.example/b/../c", False),
        ("https://a.example/b", "https://a.example/b/%2e%2e/c", False),
        ("https://a.example", "https://a.example.org/c", False),
        ("https://a.example", "https://a.example:8443/c", False),
        ("http://a.example:80", "http://a.example/c", True),
    ],
)
def test_a_prefix_is_a_server_and_whole_directories(node, entry, url, is_allowed):
    allow(node, entry)
    paths = pathutils.Paths(str(node), "n1")
    try:
        sources.check_url(paths, url, is_checked=True)
    except sources.errors.ParseError:
        assert not is_allowed
    else:
        assert is_allowed


def test_a_directory_that_becomes_a_link_leads_nowhere(node, monkeypatch):
    inside = node / "srv/ganeti/images/new"
    inside.mkdir()
    (inside / "secret").write_bytes(b"an image")
    place, resolve = secret(node), os.path.realpath

    def swap(path, **options):
        real = resolve(path, **options)
        if real == str(inside / "secret"):
            inside.rename(node / "old")
            inside.symlink_to(place.parent)
        return real

    monkeypatch.setattr(os.path, "realpath", swap)
    paths = pathutils.Paths(str(node), "n1")
    with pytest.raises(sources.errors.ParseError, match=r"cannot be read.*a symbolic"):
        sources.open_file(paths, "/srv/ganeti/images/new/secret")


def test_a_wrong_line_of_the_list_is_named(node, monkeypatch, capsys):
    allow(node, "/srv", "ftp://x")
    wanted(monkeypatch, url="https://a/b", sha256=SUM)
    code, output = run(capsys, "verify", "parameters")
    assert code == 1
    assert "image-sources, line 2: wanted a directory" in output


@pytest.mark.parametrize("more", [0, 1])
def test_a_list_of_sources_has_at_most_64_kib(node, more):
    allow(node, "/srv", "#" * (65536 - len("/srv\n\n") + more))
    paths = pathutils.Paths(str(node), "n1")
    if not more:
        assert sources.load(paths) == ("/srv",)
        return
    with pytest.raises(sources.errors.GenericError, match="larger than 65536 bytes"):
        sources.load(paths)


def test_content_goes_out_and_in_again(node, monkeypatch):
    (node / "disk0").write_bytes(b"content".ljust(MIB, b"x"))
    env = {
        "PATH": SAFE_PATH,
        "GANETI_TOOLS_DIR": pathutils.Paths().tools_dir,
        "EXPORT_DEVICE": str(node / "disk0"),
        "IMPORT_DEVICE": str(node / "disk1"),
    }
    (node / "disk1").write_bytes(bytes(2 * MIB))
    scripts = {n: str(DEFINITION / n) for n in ("export", "import", "rename")}
    done = subprocess.run([scripts["export"]], env=env, capture_output=True, check=True)
    assert done.stdout == (node / "disk0").read_bytes()
    subprocess.run([scripts["import"]], env=env, input=done.stdout, check=True)
    assert (node / "disk1").read_bytes() == done.stdout + bytes(MIB)
    subprocess.run([scripts["rename"]], env=env, check=True)


# Boot disks of helper machines
def helped(node, monkeypatch, capsys, source):
    """Run the program; return its exit code, its messages and the boot disk."""
    target = node / "helper.raw"
    monkeypatch.setenv("HELPER_IMAGE", source)
    monkeypatch.setenv("HELPER_DISK", str(target))
    code, output = run(capsys, "helper")
    assert not list(node.glob("*.new"))
    return code, output, target.read_bytes() if target.exists() else None


@pytest.mark.parametrize("form", ["qcow2", "raw"])
def test_the_format_of_a_helper_machine_is_that_of_its_header(
    node, monkeypatch, capsys, form
):
    path = node / "srv/ganeti/images/a.img"
    if form == "qcow2":
        qcow2(path, content=b"boot me", size=MIB)
    else:
        path.write_bytes(b"boot me".ljust(512 * 1024, b"\0"))
    place = "/srv/ganeti/images/a.img"
    code, output, disk = helped(node, monkeypatch, capsys, place)
    assert code == 0, output
    assert disk == b"boot me".ljust(MIB, b"\0")
    assert (node / "helper.raw").stat().st_mode & 0o777 == 0o600


def test_an_image_of_a_helper_machine_is_downloaded(node, server, monkeypatch, capsys):
    body = server.RequestHandlerClass.body = b"net".ljust(MIB, b"\0")
    allow(node, server.base)
    url = f"{server.base}/a.img#sha256={hashlib.sha256(body).hexdigest()}"
    code, output, disk = helped(node, monkeypatch, capsys, url)
    assert (code, disk) == (0, body), output
    (node / "helper.raw").unlink()
    server.RequestHandlerClass.body = b"bad".ljust(MIB, b"\0")
    code, output, disk = helped(node, monkeypatch, capsys, url)
    assert (code, disk) == (1, None)
    assert "sha256: wanted" in output


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("relative", "wanted an absolute path, https://"),
        ("http://a.example/i", "or a URL that ends in #sha256=DIGEST"),
        ("https://u:p@a.example/i#md5=0", "https://a.example/i: wanted a checksum"),
        ("https://a.example/i#sha256=0", "wanted a checksum such as"),
        ("/etc/passwd", "not among the sources of this node"),
        ("ftp://a.example/i#sha256=" + "0" * 64, "wanted https:// or http://"),
    ],
)
def test_wrong_images_of_helper_machines(node, monkeypatch, capsys, source, text):
    code, output, disk = helped(node, monkeypatch, capsys, source)
    assert (code, disk) == (1, None)
    assert text in output
    assert "u:p" not in output


def test_a_hostile_image_is_no_boot_disk(node, monkeypatch, capsys):
    place = node / "srv/ganeti/images/a.img"
    with_backing(node, place)
    source = "/srv/ganeti/images/a.img"
    code, output, disk = helped(node, monkeypatch, capsys, source)
    assert (code, disk) == (1, None)
    assert "names a backing file" in output


def test_an_image_leaves_space_for_the_store(node, monkeypatch, capsys):
    path = node / "srv/ganeti/images/a.img"
    with open(path, "wb") as image:
        image.truncate(1 << 39)
    source = "/srv/ganeti/images/a.img"
    code, output, disk = helped(node, monkeypatch, capsys, source)
    assert (code, disk) == (1, None)
    assert "wanted 524288 MiB besides 512 MiB that stay free in" in output
