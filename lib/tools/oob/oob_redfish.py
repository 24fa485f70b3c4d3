"""``oob-redfish``: an out-of-band helper for management controllers with Redfish.

The controller must prove its identity before it gets the password: by a certificate of
a known authority for its address, or by a certificate whose digest is set. What it
answers is data: its links serve to identify resources of the documented paths and are
not followed elsewhere, and no redirect is.
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pycurl
from cryptography.hazmat.primitives import serialization

from ganeti.base import errors
from ganeti.base.constants.protocols import oob
from ganeti.base.tls import x509
from ganeti.model import serializer
from ganeti.tools.oob import oob_common

#: Setting -> default; None if each node needs one.
KEYS: Final[dict[str, str | None]] = {
    "address": None,
    "user": None,
    "password": None,
    "port": "443",
    "system": "",
    "fingerprint": "",
    "ca": "/etc/ssl/certs/ca-certificates.crt",
}
_ID: Final = r"(?!\.+(?:/|$))[0-9A-Za-z._~-]{1,100}"
_FORMS: Final = {
    "address": r"[0-9A-Za-z:][0-9A-Za-z.:%-]*",
    # Basic authentication ends the name at a colon.
    "user": r"[^:\x00-\x1f\x7f]+",
    "port": r"[1-9][0-9]{0,4}",
    "system": rf"|{_ID}",
    "fingerprint": r"|(?:[0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}",
    "ca": r"/[^\x00]+",
}
_SYSTEMS: Final = "/redfish/v1/Systems"
_CHASSIS: Final = "/redfish/v1/Chassis"
#: Largest answer, in bytes; one of a big machine has 60 KiB.
_MAX_ANSWER: Final = 1 << 20
#: Seconds for one answer of a controller, some of which are slow.
_ANSWER_S: Final = 20.0
_OK: Final = 200
_REDIRECTS: Final = range(300, 400)
_NOT_ALLOWED: Final = (401, 403)
_NOT_THERE: Final = 404
#: ``PowerState`` -> whether the machine has power.
_STATES: Final = {
    "On": True,
    "PoweringOff": True,
    "Paused": True,
    "Off": False,
    "PoweringOn": False,
}
#: Command -> kinds of reset, the best first.
_RESETS: Final = {
    oob.OOB_POWER_ON: ("On", "ForceOn"),
    oob.OOB_POWER_OFF: ("ForceOff",),
    oob.OOB_POWER_CYCLE: ("PowerCycle", "ForceRestart"),
}
_HEALTH: Final = {
    "OK": oob.OOB_STATUS_OK,
    "Warning": oob.OOB_STATUS_WARNING,
    "Critical": oob.OOB_STATUS_CRITICAL,
}
#: Most rows of a health report, and most chassis of one machine.
_MAX_ROWS: Final = 300
_MAX_CHASSIS: Final = 16
#: Resource of a chassis -> its lists of parts.
_PARTS: Final = {
    "Thermal": ("Temperatures", "Fans"),
    "Power": ("PowerSupplies", "Voltages"),
}
#: Asks a path, with a JSON body or by GET within some seconds; returns status and body.
Ask = Callable[[str, bytes | None, float], tuple[int, bytes]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the helper."""

    def act(command: str, settings: oob_common.Settings) -> Any:
        return Controller(settings, Connection, time.monotonic, time.sleep).execute(
            command
        )

    about = "Control the power of a node through Redfish."
    return oob_common.main("oob-redfish", about, KEYS, act, argv)


class Connection:
    """HTTPS requests to one controller, over one connection.

    Args:
        settings: see `KEYS`.
        timeout_s: to read the certificate if its digest is set.

    Raises:
        CommandError: the controller is not reachable, or is another one.
    """

    def __init__(self, settings: oob_common.Settings, timeout_s: float) -> None:
        address = settings["address"]
        host = f"[{address}]" if ":" in address else address
        self._base = f"https://{host}:{settings['port']}"
        self._settings = settings
        self._trust: dict[int, Any] = {
            pycurl.SSL_VERIFYPEER: 1,
            pycurl.SSL_VERIFYHOST: 2,
            pycurl.CAINFO: settings["ca"],
        }
        if settings["fingerprint"]:
            self._trust = {
                pycurl.SSL_VERIFYPEER: 0,
                pycurl.SSL_VERIFYHOST: 0,
                pycurl.PINNEDPUBLICKEY: self._pin(timeout_s),
            }
        self._curl = self._handle(self._trust)
        self._curl.setopt(pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC)
        self._curl.setopt(pycurl.USERNAME, settings["user"].encode())
        self._curl.setopt(pycurl.PASSWORD, settings["password"].encode())

    def __call__(
        self, path: str, body: bytes | None, timeout_s: float
    ) -> tuple[int, bytes]:
        """Send a request; return status and body.

        Raises:
            CommandError: there is no answer.
        """
        curl, answer = self._curl, bytearray()

        def take(data: bytes) -> int | None:
            answer.extend(data)
            return None if len(answer) <= _MAX_ANSWER else -1

        curl.setopt(pycurl.URL, self._base + path)
        curl.setopt(pycurl.TIMEOUT_MS, max(1, int(timeout_s * 1000)))
        curl.setopt(pycurl.WRITEFUNCTION, take)
        headers = ["Accept: application/json", "OData-Version: 4.0", "Expect:"]
        if body is None:
            curl.setopt(pycurl.HTTPGET, 1)
        else:
            curl.setopt(pycurl.POST, 1)
            curl.setopt(pycurl.POSTFIELDS, body)
            headers.append("Content-Type: application/json")
        curl.setopt(pycurl.HTTPHEADER, headers)
        _perform(curl, self._settings)
        return int(curl.getinfo(pycurl.RESPONSE_CODE)), bytes(answer)

    def _handle(self, trust: Mapping[int, Any]) -> pycurl.Curl:
        curl = pycurl.Curl()
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTPS)
        curl.setopt(pycurl.FOLLOWLOCATION, 0)
        curl.setopt(pycurl.PROXY, "")
        curl.setopt(pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2)
        for option, value in trust.items():
            curl.setopt(option, value)
        return curl

    def _pin(self, timeout_s: float) -> str:
        """Return the pin of the public key of the certificate with the set digest.

        Nothing is sent over this first connection. The second one must prove that it
        has the private key of the certificate.
        """
        curl = self._handle({pycurl.SSL_VERIFYPEER: 0, pycurl.SSL_VERIFYHOST: 0})
        curl.setopt(pycurl.URL, self._base)
        curl.setopt(pycurl.CONNECT_ONLY, 1)
        curl.setopt(pycurl.OPT_CERTINFO, 1)
        curl.setopt(pycurl.TIMEOUT_MS, max(1, int(timeout_s * 1000)))
        _perform(curl, self._settings)
        chain = curl.getinfo(pycurl.INFO_CERTINFO)
        pem = dict(chain[0]).get("Cert", "") if chain else ""
        certificate = x509.parse_certificate(pem.encode(), "its certificate")
        raw = certificate.public_bytes(serialization.Encoding.DER)
        present = hashlib.sha256(raw).hexdigest()
        if present != self._settings["fingerprint"].replace(":", "").lower():
            raise errors.CommandError(
                "wanted the certificate of the setting fingerprint, found"
                f" {present}; if the controller has a new one, correct the setting"
            )
        key = certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return "sha256//" + base64.b64encode(hashlib.sha256(key).digest()).decode()


def _perform(curl: pycurl.Curl, settings: oob_common.Settings) -> None:
    try:
        curl.perform()
    except pycurl.error as err:
        raise errors.CommandError(_cause(*err.args, settings=settings)) from err


def _cause(code: int, text: str, *, settings: oob_common.Settings) -> str:
    """Return the text for a failed request."""
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return "does not answer in time"
    if code == pycurl.E_WRITE_ERROR:
        return f"answers with more than {_MAX_ANSWER} bytes"
    if code == pycurl.E_SSL_PINNEDPUBKEYNOTMATCH:
        return "shows another certificate than at first; something is between"
    line = oob_common.one_line(text, [settings["password"]])
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        return f"{line}; if that is its certificate, set fingerprint, or ca"
    return line


class Controller(oob_common.Controller):
    """The management controller of one machine.

    Args:
        settings: see `KEYS`.
        connect: given settings and seconds, returns a function that asks.
        now: returns seconds since any moment.
        sleep: waits for some seconds.

    Raises:
        ConfigurationError: a setting has not its form.
    """

    def __init__(
        self,
        settings: oob_common.Settings,
        connect: Callable[[oob_common.Settings, float], Ask],
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        oob_common.check_forms(settings, _FORMS)
        if not re.fullmatch(r"[^\x00-\x1f\x7f]+", settings["password"]):
            raise errors.ConfigurationError("invalid password")
        super().__init__(f"controller {settings['address']}", now, sleep)
        self._settings = settings
        self._connect = connect
        self._connected: Ask | None = None
        self._system_path = ""

    def is_on(self) -> bool:
        """Return whether the machine has power."""
        return self._state_of(self._system())

    def _state_of(self, system: Mapping[str, Any]) -> bool:
        state = system.get("PowerState")
        if not isinstance(state, str) or state not in _STATES:
            raise self.problem(f"unclear power state {_short(state)}")
        return _STATES[state]

    def order(self, command: str) -> None:
        """Order power-on, power-off or power-cycle."""
        system = self._system()
        if command == oob.OOB_POWER_ON and system.get("PowerState") == "PoweringOn":
            return
        action = _table(_table(system.get("Actions")).get("#ComputerSystem.Reset"))
        allowed = action.get("ResetType@Redfish.AllowableValues")
        kinds = _RESETS[command]
        if isinstance(allowed, list):
            kinds = tuple(kind for kind in kinds if kind in allowed)
        if not kinds:
            raise self.problem(
                f"its system has no reset type for {command}, wanted one of"
                f" {', '.join(_RESETS[command])}, found {_short(allowed)}"
            )
        path = f"{self._system_path}/Actions/ComputerSystem.Reset"
        if action.get("target") == f"{path}/":
            path += "/"
        self._ask(path, json.dumps({"ResetType": kinds[0]}).encode())

    def health(self) -> list[list[str]]:
        """Return name and health of the machine's parts that report one."""
        system = self._system()
        rows = [
            _row("System", system),
            _row("Processor", system.get("ProcessorSummary")),
            _row("Memory", system.get("MemorySummary")),
        ]
        links = _table(system.get("Links")).get("Chassis")
        for link in links[:_MAX_CHASSIS] if isinstance(links, list) else ():
            rows += self._chassis_rows(self._member(link, _CHASSIS))
        return [row for row in rows if row][:_MAX_ROWS]

    def _chassis_rows(self, path: str) -> list[list[str]]:
        chassis = self._get(path)
        rows = [_row(f"Chassis {path.rpartition('/')[2]}", chassis)]
        for resource, lists in _PARTS.items():
            if resource not in chassis:
                continue
            report = self._get(f"{path}/{resource}")
            for name in lists:
                parts = report.get(name)
                for part in parts if isinstance(parts, list) else ():
                    title = _table(part).get("Name") or _table(part).get("MemberId")
                    rows.append(_row(title, part))
        return rows

    # Requests
    def _system(self) -> Mapping[str, Any]:
        """Return the resource of the machine."""
        if not self._system_path:
            self._system_path = self._find_system()
        return self._get(self._system_path)

    def _find_system(self) -> str:
        if self._settings["system"]:
            return f"{_SYSTEMS}/{self._settings['system']}"
        members = self._get(_SYSTEMS).get("Members")
        if not isinstance(members, list):
            raise self.problem(f"its list of systems has no members: {_short(members)}")
        if len(members) != 1:
            raise self.problem(
                f"has {len(members)} systems; name one in the setting system"
            )
        return self._member(members[0], _SYSTEMS)

    def _member(self, link: Any, collection: str) -> str:
        """Return the path of a member of a collection, checked.

        Raises:
            OpExecError: the link leads elsewhere.
        """
        path = _table(link).get("@odata.id")
        if isinstance(path, str) and re.fullmatch(rf"{collection}/{_ID}/?", path):
            return path.rstrip("/")
        raise self.problem(
            f"wanted a link to a member of {collection}, found {_short(link)}"
        )

    def _get(self, path: str) -> Mapping[str, Any]:
        """Return a resource."""
        body = self._ask(path)
        try:
            value = serializer.load(body)
        except errors.ParseError as err:
            raise self.problem(f"{path}: {err}") from err
        if not isinstance(value, dict):
            raise self.problem(f"{path}: wanted an object, found {_short(value)}")
        return value

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        """Return the body of an answer that is no error."""
        try:
            if self._connected is None:
                limit_s = min(self.left_s(), _ANSWER_S)
                self._connected = self._connect(self._settings, limit_s)
            limit_s = min(self.left_s(), _ANSWER_S)
            status, answer = self._connected(path, body, limit_s)
        except errors.CommandError as err:
            raise self.problem(str(err)) from err
        if _OK <= status < _REDIRECTS.start:
            return answer
        if status in _REDIRECTS:
            raise self.problem(f"{path}: redirects elsewhere, which is not followed")
        if status in _NOT_ALLOWED:
            raise self.problem(f"refuses user {self._settings['user']} ({status})")
        if status == _NOT_THERE:
            raise self.problem(f"{path}: does not exist there")
        raise self.problem(f"{path}: status {status}: {self._message(answer)}")

    def _message(self, answer: bytes) -> str:
        """Return the text of an error's body."""
        try:
            error = _table(_table(serializer.load(answer)).get("error"))
        except errors.ParseError:
            return "no further text"
        more = error.get("@Message.ExtendedInfo")
        first = _table(more[0]) if isinstance(more, list) and more else {}
        text = first.get("Message") or error.get("message") or "no further text"
        return oob_common.one_line(str(text), [self._settings["password"]])


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _short(value: Any) -> str:
    return oob_common.one_line(repr(value))[:80]


def _row(name: Any, resource: Any) -> list[str]:
    """Return name and health of a resource, nothing if it reports no health."""
    status = _table(_table(resource).get("Status"))
    health = status.get("HealthRollup") or status.get("Health")
    if health is None or status.get("State") in ("Absent", "Disabled"):
        return []
    known = _HEALTH.get(health) if isinstance(health, str) else None
    title = oob_common.one_line(name if isinstance(name, str) else "")
    return [title[: oob.OOB_ITEM_CHARS] or "part", known or oob.OOB_STATUS_UNKNOWN]
