"""A process that does what it is asked: a child that is no query process."""

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection

from headrace.interfaces.processes.messages import Cancel, Failed, Needed


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    messages = []
    there = threading.Event()

    def listen() -> None:
        try:
            while True:
                messages.append(connection.recv())
                there.set()
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=listen, daemon=True).start()
    print("an error of Java", file=sys.stderr, flush=True)
    while True:
        there.wait()
        there.clear()
        match messages.pop(0):
            case "pid":
                connection.send(subprocess.Popen(["sleep", "1000"]).pid)
            case "end":
                os._exit(1)
            case "obey":
                while not messages:
                    time.sleep(0.01)
                assert isinstance(messages.pop(), Cancel)
                there.clear()
                connection.send("cancelled")
            case ("need", question):
                connection.send(Needed(question))
                while not messages:
                    time.sleep(0.01)
                there.clear()
                connection.send(messages.pop(0))
            case "need when cancelled":
                while not messages:
                    time.sleep(0.01)
                assert isinstance(messages.pop(), Cancel)
                connection.send(Needed("more"))
                while not messages:
                    time.sleep(0.01)
                assert isinstance(messages.pop(), Failed)
                there.clear()
                connection.send("cancelled")
            case "disobey":
                time.sleep(1000)
            case other:
                connection.send(other)


if __name__ == "__main__":
    main()
