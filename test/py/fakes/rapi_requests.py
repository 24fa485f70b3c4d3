"""Single requests to the remote API of a virtual cluster."""

import contextlib
import http.client
import json
import ssl


def ask(cluster, method, path, headers, body=None, *, node="node1"):
    """Return status and decoded body of one request."""
    answer, value = answer_of(cluster, method, path, headers, body, node=node)
    return answer.status, value


def answer_of(cluster, method, path, headers, body=None, *, node="node1"):
    """Return the answer to a request, and its decoded body, None for an empty one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    conn = http.client.HTTPSConnection(
        cluster.node(node).address, 5080, context=context, timeout=60
    )
    with contextlib.closing(conn):
        headers = {"Content-Type": "application/json", **headers}
        data = None if body is None else json.dumps(body)
        conn.request(method, path, body=data, headers=headers)
        answer = conn.getresponse()
        text = answer.read()
        return answer, json.loads(text) if text else None
