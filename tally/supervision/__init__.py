"""Several processes as one server: `tally server --processes N`.

    port.py             the port that they share, and nobody else
    messages.py         what supervisor and processes tell each other
    child.py            a process: a server that ends with its supervisor
    children.py         a process, as its supervisor sees it
    backoff.py          when one that ended is started again
    supervisor.py       keeps them running
    merged_metrics.py   the metrics of all of them in one answer
    run.py              all of it together

The supervisor takes no calls, opens no store and counts nothing: whatever happens to it, no count
can be wrong. Each process is a server like any other; they share nothing but the port.
"""
