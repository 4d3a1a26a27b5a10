"""gRPC over HTTP/2 on the event loop itself: no other thread, no queue between socket and handler.

    server      listens, finds the handler of a call, watches deadlines and ages, stops
    connection  one client: frames in, limits, and when it ends
    answers     frames out, as far as the client takes them
    call        one call: what a handler gets as its context, and what it answers
    requests    from the headers of a request to its call
    frames, header_block, huffman, messages, metadata: what is on the wire
    sockets     where it listens

docs/adr/0025 says why it is here, and docs/transport.md what it does and what it does not.
"""
