"""Keys in memcached: at most 250 bytes, without spaces and control characters.

    PREFIX:c:NAMESPACE_ID:COUNTER     a cached count
    PREFIX:n:NAMESPACE_ID:COUNTER     a best_effort counter
    PREFIX:t:NAMESPACE_ID#HASH        a token of a best_effort counter

Counter names are any UTF-8 up to 256 bytes. One that is plain (printable ASCII without spaces, not
too long) stands in the key as it is, so that an operator can find it; of any other, and of tokens,
there is `#` and a 128-bit BLAKE2b hash. That hash is cryptographic because names often come from
users: nobody can make two names with the same one (2^64 attempts), and by chance a trillion names
have a collision with a probability of 10^-15.

The prefix keeps fleets apart that share servers: namespace ids start at 1 in each of them.
"""

from collections.abc import Iterable
from hashlib import blake2b

from counter.storage.ports import CounterKey

# With the longest prefix, id and name the key has 246 bytes.
_PREFIX_BYTES_MAX = 32
_PLAIN_NAME_BYTES_MAX = 190


def key_prefix(text: str) -> str:
    """The text as it may stand in a key: itself, or its hash."""
    if len(text) <= _PREFIX_BYTES_MAX and _is_plain(text):
        return text
    return _hash(text.encode())


def counter_keys(start: str, keys: Iterable[CounterKey]) -> list[bytes]:
    """`start` is the prefix and the kind: "tally:c:"."""
    made = []
    last_id, start_of_id = -1, ""
    for namespace_id, counter in keys:
        if namespace_id != last_id:  # those of one namespace come together
            last_id, start_of_id = namespace_id, f"{start}{namespace_id}:"
        # _is_plain, spelled out: this runs for each counter of each batch.
        if (
            len(counter) <= _PLAIN_NAME_BYTES_MAX
            and counter.isascii()
            and counter.isprintable()
            and " " not in counter
        ):
            made.append((start_of_id + counter).encode())
        else:
            made.append(f"{start}{namespace_id}#{_hash(counter.encode())}".encode())
    return made


def counter_key(start: str, key: CounterKey) -> bytes:
    return counter_keys(start, (key,))[0]


def token_key(start: str, key: CounterKey, dedupe_key: str) -> bytes:
    namespace_id, counter = key
    name = counter.encode()
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    hashed = _hash(b"%d:%b%b" % (len(name), name, dedupe_key.encode()))
    return f"{start}{namespace_id}#{hashed}".encode()


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _hash(name: bytes) -> str:
    return blake2b(name, digest_size=16).hexdigest()
