"""Changes of the metadata quorum, each from a plan: voters, and the levels of features."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from ottla.admin.errors import raise_for
from ottla.admin.quorum import add_voter, describe_features, remove_voter, update_features
from ottla.console.plans import Form, Plan, change
from ottla.console.security.roles import ADMIN
from ottla.console.web import BadInput, View, whole
from ottla.errors import ApiException
from ottla.wire.enums import UpgradeType
from ottla.wire.uuid import ZERO_UUID, uuid_from_str, uuid_to_str

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.console.sampler.state import QuorumState

_STATIC: Final = "All nodes name the voters in controller.quorum.voters (kraft.version 0): they are fixed."


def _quorum(view: View) -> QuorumState:
    if view.state.quorum is None:
        raise BadInput("This cluster does not tell about a metadata quorum.")
    return view.state.quorum


@change("quorum.remove", ADMIN)
async def plan_remove(view: View, form: Form) -> Plan:
    """Take a controller's vote away."""
    quorum = _quorum(view)
    number = whole(form.get("node", ""), "Node", 0, 2**31 - 1)
    voters = [each for each in quorum.voters if each.voter]
    found = next((each for each in voters if each.node_id == number), None)
    if found is None:
        raise BadInput(f"Node {number} is no voter.")
    fixed = found.directory_id == uuid_to_str(ZERO_UUID)
    left = len(voters) - 1
    refused = _STATIC if fixed else "" if left else "It is the only voter: add another one first."

    async def apply() -> str:
        await view.cluster.call(remove_voter, number, uuid_from_str(found.directory_id))
        return f"Node {number} votes no more. Stop its controller now."

    warnings = []
    if number == quorum.leader:
        warnings.append("It leads the quorum: another controller is elected.")
    if left in (1, 2):
        warnings.append(
            "With so few voters, the cluster stands still when "
            + ("it is lost." if left == 1 else "one of the two is lost.")
        )
    return Plan(
        title=f"Remove controller {number}",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        columns=("Voters now", "Then"),
        rows=[
            (
                ", ".join(str(each.node_id) for each in voters),
                ", ".join(str(each.node_id) for each in voters if each is not found) or "none",
            )
        ],
        warnings=warnings,
        commands=[
            f"ottla metadata-quorum --bootstrap-server {view.cluster.bootstrap} remove-controller --controller-id"
            f" {number} --controller-directory-id {found.directory_id}"
        ],
        refused=refused,
        danger=True,
        button="Remove the voter",
        then=view.url("quorum"),
    )


@change("quorum.add", ADMIN)
async def plan_add(view: View, form: Form) -> Plan:
    """Give a controller that follows the quorum a vote."""
    quorum = _quorum(view)
    number = whole(form.get("node", ""), "Node", 0, 2**31 - 1)
    found = next((each for each in quorum.voters if each.node_id == number and not each.voter), None)
    if found is None:
        raise BadInput(f"Node {number} does not follow the quorum: start it as a controller first.")
    listener = form.get("listener", "").strip() or "CONTROLLER"
    address = form.get("address", "").strip()
    host, _, digits = address.rpartition(":")
    host = host.strip("[]")
    if not host or not digits:
        raise BadInput(f"'{address[:80]}' is no address: expected HOST:PORT of the controller's listener.")
    port = whole(digits, "Port", 1, 65_535)
    voters = [each.node_id for each in quorum.voters if each.voter]
    fixed = found.directory_id == uuid_to_str(ZERO_UUID)

    async def apply() -> str:
        directory = uuid_from_str(found.directory_id)
        await view.cluster.call(add_voter, number, directory, [(listener, host, port)])
        return f"Node {number} votes from now on."

    behind = max(quorum.high_watermark - found.log_end_offset, 0)
    return Plan(
        title=f"Add controller {number}",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        sentence="The leader connects to this address before it counts the vote.",
        columns=("Voters now", "Then", "Address"),
        rows=[
            (", ".join(map(str, voters)), ", ".join(map(str, sorted([*voters, number]))), f"{host}:{port}")
        ],
        warnings=[f"It lacks {behind:,} records: let it catch up first."] if behind > 1_000 else [],
        commands=[
            f"ottla metadata-quorum --bootstrap-server {view.cluster.bootstrap} --command-config"
            f" the-properties-of-{number} add-controller"
        ],
        refused=_STATIC if fixed else "",
        button="Add the voter",
        then=view.url("quorum"),
        agreed=[voters, number, listener, host, port],
    )


@change("feature.set", ADMIN)
async def plan_feature(view: View, form: Form) -> Plan:
    """Raise or lower the level of a feature, if the cluster says that it can."""
    name = form.get("feature", "")
    described = await view.cluster.call(describe_features)
    known = {each.name: (each.min_version, each.max_version) for each in described.supported_features}
    if name not in known:
        raise BadInput(f"There is no feature '{name[:80]}'.")
    levels = {each.name: each.max_version_level for each in described.finalized_features}
    now = levels.get(name, 0)
    low, high = known[name]
    level = whole(form.get("level", ""), "Level", 0, max(high, now))
    upgrade = UpgradeType.UPGRADE if level > now else UpgradeType.SAFE_DOWNGRADE

    def update(cluster: Cluster, validate_only: bool) -> None:
        answer = update_features(cluster, {name: (upgrade, level)}, validate_only=validate_only)
        raise_for(answer.error_code, answer.error_message, name)
        for each in answer.results:
            raise_for(each.error_code, each.error_message, name)

    refused = f"{name} has this level already." if level == now else ""
    if not refused:
        try:
            await view.cluster.call(update, True)
        except ApiException as error:
            refused = error.message or error.code.name

    async def apply() -> str:
        await view.cluster.call(update, False)
        return f"The level of {name} is {level}."

    action = "upgrade" if level > now else "disable" if level == 0 else "downgrade"
    target = name if action == "disable" else f"{name}={level}"
    return Plan(
        title=f"Level of {name}",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        columns=("Feature", "Now", "Then", "Supported"),
        rows=[(name, now, level, f"{low} to {high}")],
        warnings=["Versions of Kafka that do not know this level cannot join the cluster any more."]
        if level > now
        else [],
        commands=[
            f"ottla features --bootstrap-server {view.cluster.bootstrap} {action} --feature {shlex.quote(target)}"
        ],
        refused=refused,
        button="Set the level",
        then=view.url("quorum"),
    )
