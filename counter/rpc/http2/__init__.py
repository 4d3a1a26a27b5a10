"""gRPC over HTTP/2 on the event loop itself: no other thread, no queue between socket and handler.

    server      listens, finds the handler of a call, watches deadlines and ages, stops
    connection  one client: frames in and out, limits, flow control
    call        one call: what a handler gets as its context, and what it answers
    header_block, messages, frames: what is on the wire

docs/adr/0025 says why it is here, and docs/transport.md what it does and what it does not.
"""
