"""What a process of an evolutionary coder asks: the score of a program, of ``envcoder_bench.Evaluator.listen()``.

It needs Python alone, so that a coder can be in an environment of its own.
"""

import json
from multiprocessing.connection import Client


def score(address, source):
    """Return score and feedback of the text of a candidate file."""
    with Client(address) as connection:
        connection.send_bytes(source.encode())
        return json.loads(connection.recv_bytes())
