"""A cluster in which a node fails, as programs that repair it see the master."""

from fakes.luxi_master import Connection
from ganeti.decisions.repair import tags

P = tags.PREFIX


class BrokenCluster(Connection):
    """A master whose tag jobs change tags, and whose repairs move instances.

    Attributes:
        is_slow: repairs run until `finish`.
    """

    def __init__(self):
        super().__init__()
        self.master.lists_jobs = True
        self.is_slow = False
        self.master.cluster = {"tags": [f"{P}failover"], "default_iallocator": "best,b"}
        self.master.objects = {
            "group": [{"uuid": "g", "name": "default", "tags": []}],
            "node": [
                {"name": n, "offline": False, "drained": False, "group.uuid": "g"}
                for n in ("n1", "n2")
            ],
            "instance": [self.made("a", "sharedfile"), self.made("b", "plain")],
        }
        self.master.results["OP_TAGS_SET"] = self._set
        self.master.results["OP_TAGS_DEL"] = self._del
        self.master.results["OP_INSTANCE_FAILOVER"] = self.heal

    @staticmethod
    def made(name, template):
        return {
            "name": name,
            "pnode": "n1",
            "snodes": [],
            "tags": [],
            "disk_template": template,
            "admin_state": "up",
            "forthcoming": False,
        }

    def tags(self, name="a"):
        return self.find("instance", name)["tags"]

    def find(self, kind, name):
        return next(o for o in self.master.objects[kind] if o["name"] == name)

    def fail(self, node="n1"):
        self.find("node", node)["offline"] = True

    def _owner(self, op):
        if op.kind == "cluster":
            return self.master.cluster
        kind = {"nodegroup": "group"}.get(op.kind, op.kind)
        return self.find(kind, op.name)

    def _set(self, op):
        self._owner(op)["tags"] += op.tags

    def _del(self, op):
        owner = self._owner(op)
        owner["tags"] = [tag for tag in owner["tags"] if tag not in op.tags]

    def heal(self, op):
        if not self.is_slow:
            self.find("instance", op.instance_name)["pnode"] = "n2"

    def call(self, method, args=()):
        answer = super().call(method, args)
        is_repair = method == "SubmitJob" and not self._is_tagging(answer)
        if is_repair and self.is_slow:
            self.master.still[answer] = "running"
        return answer

    def _is_tagging(self, job):
        return self.master.jobs[job][0].op_id().startswith("OP_TAGS")

    def finish(self):
        """End the repairs that run."""
        self.is_slow = False
        for job in self.master.still:
            for op in self.master.jobs[job]:
                if op.op_id() == "OP_INSTANCE_FAILOVER":
                    self.heal(op)
        self.master.still.clear()

    def submitted(self):
        """Give the opcodes of every job, tags left out."""
        rows = [[op.op_id() for op in job] for job in self.master.jobs.values()]
        return [row for row in rows if not row[0].startswith("OP_TAGS")]
