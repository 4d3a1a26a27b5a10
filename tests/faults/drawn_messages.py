"""Messages of any type, as hypothesis draws them: mostly nonsense, with a grain of sense."""

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from counter.v1 import counter_service_pb2, namespace_service_pb2, rollup_service_pb2
from tests.processes import NAMESPACES
from tests.stores import NAMES

DEPTH_MAX = 3
ITEMS_MAX = 3
INT64 = (-(2**63), 2**63 - 1)
INT32 = (-(2**31), 2**31 - 1)

# Text that UTF-8 can carry; names that mean something, so that some calls get far.
TEXT = st.sampled_from([*NAMESPACES, *NAMES, "views"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=300
)
_INTEGERS = st.sampled_from([0, 1, -1, 1_000_000, *INT64]) | st.integers(*INT64)
_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: TEXT,
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=64),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT64: _INTEGERS,
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_SFIXED64: _INTEGERS,
    FieldDescriptor.TYPE_INT32: st.sampled_from([0, 1, *INT32]) | st.integers(*INT32),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 20),
}


def unary_methods() -> list[MethodDescriptor]:
    """All that every service of Tally has."""
    services = [
        service
        for module in (counter_service_pb2, namespace_service_pb2, rollup_service_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    ]
    return [
        method
        for service in services
        for method in service.methods
        if not (method.client_streaming or method.server_streaming)
    ]


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def messages(descriptor: Descriptor, depth: int = 0) -> st.SearchStrategy[Any]:
    """Each field is there or not; nested messages end at some depth."""
    fields = {
        field.name: _values(field, depth)
        for field in descriptor.fields
        if field.message_type is None or depth < DEPTH_MAX
    }
    make = GetMessageClass(descriptor)
    return st.fixed_dictionaries({}, optional=fields).map(lambda drawn: make(**drawn))


def _values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        key, value = nested.fields
        return st.dictionaries(_values(key, depth), _values(value, depth), max_size=ITEMS_MAX)
    one = _SCALARS[field.type] if nested is None else messages(nested, depth + 1)
    return st.lists(one, max_size=ITEMS_MAX) if field.is_repeated else one
