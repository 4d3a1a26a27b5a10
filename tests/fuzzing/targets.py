"""All targets, by name."""

from tests.fuzzing import files, requests, stored, typed
from tests.fuzzing.target import Target

TARGETS: dict[str, Target] = {
    target.name: target for module in (stored, files, typed, requests) for target in module.TARGETS
}
