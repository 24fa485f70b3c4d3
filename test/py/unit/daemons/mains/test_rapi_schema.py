"""The remote API driven by schemathesis from the document that it serves."""

import collections
import os
import pathlib

import hypothesis
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from requests.auth import HTTPBasicAuth
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from fakes import seeds
from fakes.clocks import FakeClock
from fakes.rapi_master import RapiMaster
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.base.tls import x509
from ganeti.daemons import common
from ganeti.daemons.mains import rapi
from ganeti.daemons.mains.rapi import Settings
from ganeti.daemons.rapi import authentication, openapi, pool
from ganeti.protocols.luxi import shared
from ganeti.protocols.rapi.resource_table import RESOURCES

#: Requests per operation and kind of data, the same in each run of a commit.
EXAMPLES = seeds.examples(3)
SEED = seeds.of_tree(seeds.TOP)
OWNER = HTTPBasicAuth("owner", "pw")
DOCUMENT = openapi.document()
COMPONENTS = {"components": DOCUMENT["components"]}
WAIT = "/2/jobs/[job_id]/wait"
#: Valid data by the document that the contract refuses: what the words of a schema cannot
#: say (a whole number written as 1.0, a value either in the body or in the URI).
REFUSED_BY_CONTRACT = (
    "found a number",
    "give either a body or query arguments, not both",
    "give either 'live' or 'mode', not both",
    "give either the header If-Match or the parameter 'if_serial', not both",
    "Missing parameter 'fields'",
    *("cannot parse filter", "filter: ", "cursor: ", "fields: ", "sort: ", "limit: "),
    "plan: given more than once",
)


@pytest.fixture(scope="module")
def master():
    fake = RapiMaster()
    fake.call("SubmitJob", [[{"OP_ID": "OP_CLUSTER_REDIST_CONF"}]])
    return fake


@pytest.fixture(scope="module")
def schema(master, tmp_path_factory):
    """Run the daemon's service over TLS; return what schemathesis makes of it."""
    paths = Paths(root=str(tmp_path_factory.mktemp("root")), hostname="node1.x")
    os.makedirs(paths.data("rapi"))
    pathlib.Path(paths.data("ssconf_primary_ip_family")).write_text("2\n")
    pathlib.Path(paths.data("rapi/users")).write_text("owner pw write,root\n")
    certificate = pathlib.Path(paths.data("rapi.pem"))
    certificate.write_bytes(x509.create_self_signed().pem)
    certificate.chmod(0o440)
    words = ["-b", "127.0.0.1", "-p", "0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool.Pool, "call", lambda _self, *a, **k: master.call(*a, **k))
        patch.setattr(pool.Pool, "stream", lambda _self, *a: master.stream(*a))
        patch.setattr(
            shared.SharedClient, "submit", lambda _self, *a, **k: master.submit(*a, **k)
        )
        patch.setattr(authentication, "_CHANGES", (1e9, 1e9))
        options = common.parse(rapi.build_parser(), words)
        service = rapi.start(options, paths, common.Control())
        try:
            port = service._http.bind_addr[1]
            url = f"https://127.0.0.1:{port}/openapi.json"
            yield schemathesis.openapi.from_url(url, verify=False)
        finally:
            service.stop()


def refuse_wrong_answer(operation, resource, case, response):
    """Check an answer; return whether the request was accepted."""
    assert response.headers["x-request-id"]
    is_documented_500 = resource.path == WAIT
    wanted = [checks.status_code_conformance, checks.content_type_conformance]
    if not is_documented_500:
        wanted.append(not_a_server_error)
    case.validate_response(response, checks=wanted)
    if response.status_code == 304:
        assert response.content == b""
        return True
    if response.status_code == 200:
        documented = operation["responses"]["200"]["content"]["application/json"]
        form = documented["schema"]
    else:
        form = {"$ref": "#/components/schemas/Error"}
    validator = jsonschema.Draft202012Validator(COMPONENTS | form)
    validator.validate(response.json())
    return response.status_code == 200


#: A stream of events does not end; test_events reads it.
ENDING = [each for each in RESOURCES if "media" not in each.options]


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("resource", ENDING, ids=openapi.operation_id)
def test_answers_are_those_of_the_served_document(schema, master, resource, mode):
    path = resource.path.replace("[", "{").replace("]", "}")
    operation = DOCUMENT["paths"][path][resource.method.lower()]
    has_data = operation["parameters"] or "requestBody" in operation
    if mode is GenerationMode.NEGATIVE and not has_data:
        return  # no data, so none that is wrong
    strategy = schema[path][resource.method].as_strategy(generation_mode=mode)
    statuses = collections.Counter()

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def drive(case):
        before = len(master.jobs)
        response = case.call(auth=OWNER, verify=False, timeout=60)
        statuses[response.status_code] += 1
        if refuse_wrong_answer(operation, resource, case, response):
            return
        assert len(master.jobs) == before
        if mode is GenerationMode.POSITIVE and response.status_code == 400:
            message = response.json()["message"]
            assert any(text in message for text in REFUSED_BY_CONTRACT), message

    drive()
    assert statuses


# The settings of the cluster that the remote API follows.


class Master:
    """Answers `QueryClusterInfo`, or raises ``down``."""

    def __init__(self):
        self.info, self.down, self.calls = {}, None, 0

    def call(self, method, args=(), *, timeout_s=None):
        assert (method, args) == ("QueryClusterInfo", ())
        assert timeout_s == 5
        self.calls += 1
        if self.down is not None:
            raise self.down
        return self.info


@pytest.fixture
def settings_master():
    return Master()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def settings(settings_master, clock):
    return Settings(settings_master, clock)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_setting_of_the_cluster_counts_within_seconds(
    settings, settings_master, clock, wanted
):
    settings_master.info["rapi_require_authentication"] = wanted
    assert settings.requires_authentication() is wanted
    settings_master.info["rapi_require_authentication"] = not wanted
    assert settings.requires_authentication() is wanted
    assert settings_master.calls == 1
    clock.now += 5
    assert settings.requires_authentication() is not wanted


def test_a_master_daemon_of_an_earlier_release_goes_on_as_it_was(settings):
    assert settings.requires_authentication() is False


def test_nothing_is_open_before_the_master_daemon_has_answered(
    settings, settings_master, clock
):
    settings_master.down = errors.NoMasterError("/socket")
    assert settings.requires_authentication() is True
    settings_master.down = None
    assert settings.requires_authentication() is True
    clock.now += 5
    assert settings.requires_authentication() is False
    settings_master.down = errors.LuxiTimeoutError("no answer")
    clock.now += 5
    assert settings.requires_authentication() is False
