"""The config file that `tally dev up` writes, so that the fleet's programs find their backends."""

import json
import os
from pathlib import Path
from string import Template

from tally.dev.backends import NAMESPACES, Backends, State

TEMPLATE = Path(__file__).parent / "tally.yaml"
DATA_CENTER = "datacenter1"
REPLICAS_MAX = 3
# For those who have no namespaces yet, and who run `tally dev up` outside of a clone.
_EXAMPLES = {
    "video_plays": "namespace: video_plays\nstrategy: eventual\n",
    "api_quotas": "namespace: api_quotas\nstrategy: accurate\n",
}


def write_config(backends: Backends, state: State, namespaces: Path) -> Path:
    """Writes the file, unless it is there: then it may have been edited.

    The namespaces are those of `namespaces` if there is such a folder, else two examples.
    """
    if backends.config.exists():
        return backends.config
    if namespaces.is_dir():
        folder = os.path.relpath(namespaces.resolve(), backends.directory)
    else:
        folder = NAMESPACES
        (backends.directory / folder).mkdir(exist_ok=True)
        for name, text in _EXAMPLES.items():
            (backends.directory / folder / f"{name}.yaml").write_text(text)
    addresses = [node.settings.address for node in backends.nodes(state).values()]
    backends.config.write_text(
        Template(TEMPLATE.read_text()).substitute(
            contact_points=", ".join(addresses),
            port=state.native_port,
            data_center=DATA_CENTER,
            replicas=min(state.nodes, REPLICAS_MAX),
            memcached=backends.memcached(state).address,
            namespaces=json.dumps(folder),
        )
    )
    return backends.config
