"""What the decoders of packed bytes raise for bytes that nobody packed."""

import msgspec

# Apart from its own errors msgspec lets others through: for text that is not UTF-8, and for values
# that are nested too deeply, also where it only passes over them.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
