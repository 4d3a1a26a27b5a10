"""Rules in which admins change, delete, create again and roll back namespaces."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from counter.v1 import namespace_service_pb2 as pb
from tests.calls import Refusal
from tests.stateful.base import Machine
from tests.stateful.definitions import SETTINGS, Settings
from tests.stateful.writing import NAMESPACE

BAD_CHANGES = {
    "a file with a mistake": "NAMESPACES_INVALID",
    "a version that is not live": "VERSION_CONFLICT",
    "another cardinality": "CHANGE_IMPOSSIBLE",
    "a loss that is not allowed": "DATA_LOSS_NOT_ALLOWED",
}


class Administering(Machine):
    @rule(
        how=st.sampled_from(["change", "change", "change", "delete", "roll back"]),
        namespace=NAMESPACE,
        settings=SETTINGS,
        back=st.integers(1, 3),
    )
    def administer(self, how: str, namespace: str, settings: Settings, back: int) -> None:
        """A namespace that was deleted is created by a change, and then starts at 0. By a rollback
        it is there again, with its counts."""
        if how == "change":
            self.apply(self.versions.changed(namespace, settings))
        elif how == "delete" and len(self.versions.current) > 1:
            self.apply(self.versions.changed(namespace, None))
        elif how == "roll back":
            self.happened["a rollback"] += 1
            self.restore(max(1, self.versions.last - back))

    @rule(namespace=NAMESPACE, mistake=st.sampled_from(sorted(BAD_CHANGES)))
    def refuse_a_change(self, namespace: str, mistake: str) -> None:
        live = self.versions.current.get(namespace)
        if live is None:
            return
        wanted = self.versions.changed(namespace, live.settings)
        files = [
            pb.NamespaceFile(path=f"{name}.yaml", content=each.yaml(name))
            for name, each in wanted.items()
        ]
        expected_version = self.versions.last
        mine = next(each for each in files if each.path == f"{namespace}.yaml")
        if mistake == "a file with a mistake":
            mine.content += "max_dleta: 3\n"
        elif mistake == "a version that is not live":
            mine.content += "description: changed\n"
            expected_version -= 1
        elif mistake == "another cardinality":
            mine.content = mine.content.replace(live.settings.cardinality, "high")
        else:
            files = [pb.NamespaceFile(path="b.yaml", content="namespace: b\nstrategy: eventual\n")]
        request = pb.ApplyNamespacesRequest(
            files=files, expected_version=expected_version, author="the test", reason="a mistake"
        )
        answer = self.answer(self.installation.namespaces.ApplyNamespaces, request)
        assert isinstance(answer, Refusal), answer
        assert answer.reason == BAD_CHANGES[mistake], answer
        self.check_unchanged()

    def check_unchanged(self) -> None:
        listed: Any = self.answer(
            self.installation.namespaces.ListNamespaces, pb.ListNamespacesRequest()
        )
        assert listed.version == self.versions.last
        assert self.ids() == {name: live.id for name, live in self.versions.current.items()}

    def restore(self, version: int) -> None:
        request = pb.RollbackNamespacesRequest(
            version=version,
            expected_version=self.versions.last,
            author="the test",
            reason="a rollback",
            allow_data_loss=True,
        )
        answer = self.answer(self.installation.namespaces.RollbackNamespaces, request)
        if isinstance(answer, Refusal):
            # A namespace that was created again in between may be of another cardinality.
            raise AssertionError(answer)
        self.versions.restore(answer.version.version, version, self.ids())
        self.serving[0] = self.versions.last
