"""Requests to etcd's servers without servers: which is asked next, and what is certain."""

import io
import types

import msgspec
import pycurl
import pytest

from ganeti.base import errors
from ganeti.store.etcd import gateway, messages, parse
from ganeti.store.etcd.gateway import CompactedError, Gateway, OutcomeUnknownError

SERVERS = parse("etcd://a:1,b:2,c:3")
OK = (200, b"{}")


def refused(code=14, message="no leader"):
    return (503, msgspec.json.encode({"message": message, "code": code}))


LOST = pycurl.error(28, "timed out")


class Curl:
    """A handle of libcurl; answers are (status, body) or an error, by host."""

    def __init__(self, site):
        self.site = site
        self.options = {}
        self.is_closed = False

    def setopt(self, option, value):
        self.options[option] = value

    def perform(self):
        url = self.options[pycurl.URL]
        host = url.split("/")[2]
        path = url.partition("/v3/")[2]
        body = msgspec.json.decode(self.options[pycurl.POSTFIELDS])
        self.site.asked.append((host, path, body))
        self.site.limits.append(self.options[pycurl.TIMEOUT_MS])
        answer = self.site.answers[host]
        self.status, self.sent = 0, self.site.sent
        if isinstance(answer, Exception):
            raise answer
        self.status, data = answer
        for piece in data if isinstance(data, list) else [data]:
            count = self.options[pycurl.WRITEFUNCTION](piece)
            if count != len(piece):
                raise pycurl.error(23, "write error")

    def getinfo(self, what):
        return self.status if what == pycurl.RESPONSE_CODE else self.sent

    def close(self):
        self.is_closed = True


class Site:
    def __init__(self, monkeypatch):
        self.asked, self.limits, self.made = [], [], []
        self.answers = dict.fromkeys(("a:1", "b:2", "c:3"), OK)
        self.sent = 100
        monkeypatch.setattr(gateway.pycurl, "Curl", self._make)
        self.gateway = Gateway(SERVERS)

    def _make(self):
        self.made.append(Curl(self))
        return self.made[-1]

    @property
    def hosts(self):
        hosts = [host for host, _path, _body in self.asked]
        self.asked.clear()
        return hosts

    def call(self, **more):
        return self.gateway.call("kv/txn", {"x": 1}, messages.TxnAnswer, **more)


@pytest.fixture
def site(monkeypatch):
    return Site(monkeypatch)


def test_the_server_that_answered_last_is_asked_first(site):
    site.answers["a:1"] = refused(code=9)
    site.call()
    assert site.asked == [("a:1", "kv/txn", {"x": 1}), ("b:2", "kv/txn", {"x": 1})]
    site.asked.clear()
    site.call()
    assert site.hosts == ["b:2"]
    site.answers["b:2"] = site.answers["c:3"] = refused(code=9)
    site.answers["a:1"] = OK
    site.call()
    assert site.hosts == ["b:2", "c:3", "a:1"]


def test_a_request_has_a_limit_and_its_handle_is_used_again(site):
    site.call()
    site.call(timeout_s=1.5)
    assert site.limits == [int(1000 * gateway.ANSWER_S), 1500]
    assert len(site.made) == 1
    options = site.made[0].options
    assert options[pycurl.FOLLOWLOCATION] == 0
    assert options[pycurl.PROXY] == ""
    assert options[pycurl.NOSIGNAL] == 1
    assert options[pycurl.HTTPHEADER] == ["Content-Type: application/json", "Expect:"]
    # The handle keeps no reference to the last answer.
    assert options[pycurl.WRITEFUNCTION] is len
    assert options[pycurl.XFERINFOFUNCTION](1, 2) == 0
    site.gateway.close()
    assert site.made[0].is_closed
    site.call()
    assert len(site.made) == 2


def test_a_request_that_nobody_took_has_changed_nothing(site):
    site.answers = dict.fromkeys(site.answers, refused(code=9, message="no space"))
    with pytest.raises(errors.StorageError) as caught:
        site.call()
    assert not isinstance(caught.value, OutcomeUnknownError)
    text = str(caught.value)
    assert text == f"{SERVERS}: a:1: no space; b:2: no space; c:3: no space"


@pytest.mark.parametrize(
    "answer",
    [LOST, refused(2), refused(4), refused(14), (500, b"<html>"), (500, b"\xff")],
)
@pytest.mark.parametrize("which", ["a:1", "c:3"])
def test_a_request_that_one_may_have_taken_has_an_unknown_outcome(site, answer, which):
    site.answers = dict.fromkeys(site.answers, refused(code=9))
    site.answers[which] = answer
    with pytest.raises(OutcomeUnknownError, match=r"a:1: .*; b:2: .*; c:3: "):
        site.call()
    with pytest.raises(errors.StorageError) as caught:
        site.gateway.fetch("kv/range", {}, messages.RangeAnswer)
    assert not isinstance(caught.value, OutcomeUnknownError)


def test_a_request_that_was_not_sent_was_not_taken(site):
    site.sent = 0
    site.answers = dict.fromkeys(site.answers, pycurl.error(7, "refused"))
    with pytest.raises(errors.StorageError) as caught:
        site.call()
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert "a:1: refused (error 7 of libcurl)" in str(caught.value)


def test_a_status_without_explanation_is_reported(site):
    site.answers = dict.fromkeys(site.answers, (502, b"x"))
    with pytest.raises(OutcomeUnknownError, match="status 502 without an explanation"):
        site.call()


def test_a_past_state_that_is_gone_has_an_error_of_its_own(site):
    message = "etcdserver: mvcc: required revision has been compacted"
    body = msgspec.json.encode({"error": message, "code": 11})
    site.answers["a:1"] = (400, body)
    with pytest.raises(CompactedError, match="compacted"):
        site.call()
    assert site.hosts == ["a:1"]


@pytest.mark.parametrize("body", [b"", b"[1]", b"\xff", b'{"header": 5}'])
def test_an_answer_of_something_else_leaves_the_outcome_unknown(site, body):
    site.answers["a:1"] = (200, body)
    with pytest.raises(OutcomeUnknownError, match="this is not an answer of etcd"):
        site.call()


def test_numbers_of_etcd_are_text_and_bytes_are_base64(site):
    body = (
        b'{"header": {"revision": "7"}, "succeeded": true, "responses": ['
        b'{"response_range": {"kvs": [{"key": "YQ==", "value": "Yg==",'
        b' "mod_revision": "5", "create_revision": "4", "lease": "9"}]}}, {}]}'
    )
    site.answers["a:1"] = (200, body)
    actual = site.gateway.transact({})
    assert (actual.header.revision, actual.succeeded) == (7, True)
    assert actual.first(0) == messages.KeyValue(b"a", b"b", 4, 5, 9)
    assert actual.first(1) is None
    bare = messages.KeyValue(b"a")
    assert (bare.value, bare.create_revision, bare.mod_revision, bare.lease) == (
        b"",
        0,
        0,
        0,
    )
    assert messages.Header().revision == 0
    assert not messages.TxnAnswer().succeeded
    assert messages.Failure().code == messages.UNKNOWN == 2


def test_an_answer_that_is_too_large_is_broken_off(monkeypatch):
    monkeypatch.setattr(gateway, "_MAX_ANSWER", 4)
    body = gateway._Body(io.BytesIO())
    assert body.write(b"abcd") == 4
    assert body.write(b"e") == 0
    assert body.progress(1, 2) == 0


def test_a_range_is_read_in_pages(site):
    pages = [
        {"kvs": [{"key": "YQ=="}, {"key": "Yg=="}], "more": True},
        {"kvs": [{"key": "Yw=="}], "more": False},
    ]

    class Pages:
        def __getitem__(self, _host):
            return (200, msgspec.json.encode(pages.pop(0)))

    site.answers = Pages()
    keys = [[kv.key for kv in page] for page in site.gateway.range(b"a", b"z", 5, 2)]
    assert keys == [[b"a", b"b"], [b"c"]]
    bodies = [body for _host, _path, body in site.asked]
    limits = {"range_end": "eg==", "revision": 5, "limit": 2}
    assert bodies == [{"key": "YQ==", **limits}, {"key": "YgA=", **limits}]


def test_requests_have_the_form_of_the_gateway():
    assert messages.after(b"ab") == b"ac"
    assert messages.get(b"k") == {"key": b"k"}
    assert messages.read(b"k") == {"request_range": {"key": b"k"}}
    put = {"key": b"k", "value": b"v"}
    assert messages.put(b"k", b"v") == {"request_put": put}
    assert messages.put(b"k", b"v", 7) == {"request_put": {**put, "lease": 7}}
    assert messages.delete(b"k") == {"request_delete_range": {"key": b"k"}}
    wanted = {"request_delete_range": {"key": b"k", "range_end": b"l"}}
    assert messages.delete(b"k", b"l") == wanted
    assert messages.is_at(b"k", 0) == {
        "key": b"k",
        "target": "MOD",
        "mod_revision": 0,
        "result": "EQUAL",
    }
    wanted = {"compare": [1], "success": [2], "failure": ()}
    assert messages.transaction([1], [2]) == wanted


# Watches
def line(**fields):
    return msgspec.json.encode({"result": fields}) + b"\n"


EVENT = {"kv": {"key": "YQ=="}, "type": "DELETE"}


def watch(site, answer, take=lambda _events: False, **more):
    site.answers["a:1"] = answer
    site.gateway.watch(b"p/", 9, take, **more)


def test_a_watch_passes_on_events_until_it_is_over(site):
    taken = []

    def take(events):
        taken.append([(event.kv.key, event.type) for event in events])
        return len(taken) < 2

    text = line(created=True) + line(events=[EVENT]) + line(events=[EVENT, EVENT])
    watch(site, (200, [text[:30], text[30:31], text[31:], line(events=[EVENT])]), take)
    assert taken == [[(b"a", "DELETE")], [(b"a", "DELETE")] * 2]
    ((host, path, body),) = site.asked
    assert (host, path) == ("a:1", "watch")
    request = {"key": "cC8=", "range_end": "cDA=", "start_revision": 9}
    assert body == {"create_request": request}
    assert site.limits == [0]


def test_a_watch_has_a_limit_if_it_is_given_one(site):
    watch(site, (200, line(events=[EVENT])), timeout_s=2)
    assert site.limits == [2000]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((200, line(events=[EVENT])), "a:1: the watch ended (status 200)"),
        ((503, b""), "a:1: the watch ended (status 503)"),
        (LOST, "a:1: timed out (error 28 of libcurl)"),
        ((200, line(canceled=True, cancel_reason="no")), "etcd: watch ended: no"),
        ((200, b'{"error": "bad"}\n'), 'etcd: {"error": "bad"}'),
        ((200, b"[\n"), "etcd: answer of a watch: "),
    ],
)
def test_a_watch_that_ends_early_is_an_error(site, answer, text):
    with pytest.raises(errors.StorageError) as caught:
        watch(site, answer, lambda _events: True)
    assert text in str(caught.value)


def test_a_watch_that_was_lost_goes_on_at_the_next_server(site):
    with pytest.raises(errors.StorageError):
        watch(site, LOST)
    assert site.hosts == ["a:1"]
    site.answers["b:2"] = (200, line(events=[EVENT]))
    site.gateway.watch(b"p/", 9, lambda _events: False)
    assert site.hosts == ["b:2"]


def test_a_watch_from_a_state_that_is_gone(site):
    with pytest.raises(CompactedError, match="compacted up to 12"):
        watch(site, (200, line(compact_revision="12")))


def test_an_error_of_the_reader_reaches_the_caller(site):
    def take(_events):
        raise KeyError("odd")

    with pytest.raises(KeyError, match="odd"):
        watch(site, (200, line(events=[EVENT])), take)


def test_a_line_without_end_is_broken_off(site, monkeypatch):
    monkeypatch.setattr(gateway, "_MAX_ANSWER", 10)
    with pytest.raises(errors.StorageError, match="an answer of a watch is too large"):
        watch(site, (200, [b"x" * 10, b"y"]))


def test_a_watch_that_is_not_wanted_any_more_ends():
    wanted = [True, False]
    stream = gateway._Stream(lambda _events: True, lambda: wanted.pop(0))
    assert (stream.progress(), stream.is_over) == (0, False)
    assert (stream.progress(), stream.is_over) == (1, True)
    assert stream.progress() == 1
    assert stream.write(b"x") == 0


def test_certificates_are_checked(monkeypatch):
    curl = types.SimpleNamespace(options={})
    curl.setopt = curl.options.__setitem__
    files = types.SimpleNamespace(authority="ca", certificate="", key="")
    gateway._set_tls(curl, files)
    assert curl.options[pycurl.SSL_VERIFYPEER] == 1
    assert curl.options[pycurl.SSL_VERIFYHOST] == 2
    assert curl.options[pycurl.CAINFO] == "ca"
    assert curl.options[pycurl.SSLVERSION] == pycurl.SSLVERSION_TLSv1_2
    assert pycurl.SSLCERT not in curl.options
    for key, expected in (("", "c"), ("k", "k")):
        files = types.SimpleNamespace(authority="ca", certificate="c", key=key)
        gateway._set_tls(curl, files)
        assert curl.options[pycurl.SSLCERT] == "c"
        assert curl.options[pycurl.SSLKEY] == expected
