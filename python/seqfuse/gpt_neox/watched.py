"""Work of libseqfuse_decoder.so in a thread of its own, so that Ctrl-C and callbacks reach the thread that waits."""

import threading
from collections.abc import Callable
from typing import Any

import torch

WAIT_SECONDS = 0.1


def run_watched(work: Callable[[Any], Any], on_token: Callable[[int, int], bool] | None = None) -> Any:
    """work(watch), whose result or exception is this function's. watch: a torch.classes.seqfuse.Watch for the library.

    on_token: called with (text, id) for each token that the work puts on the watch, in the thread of the caller. False:
    the text ends soon, and on_token is not called for tokens that come until then. KeyboardInterrupt, and exceptions of
    on_token, stop the work after its current step.
    """
    watch = torch.classes.seqfuse.Watch()
    outcome = {}

    def run() -> None:
        try:
            outcome["result"] = work(watch)
        except BaseException as error:  # noqa: BLE001 (raised again in the thread that waits)
            outcome["error"] = error
        finally:
            watch.stop()

    thread = threading.Thread(target=run, name="seqfuse decoding")
    thread.start()
    ended = set()

    def pass_on(seconds: float) -> None:
        for text, token in zip(*watch.take(seconds)):
            if text not in ended and on_token is not None and on_token(text, token) is False:
                ended.add(text)
                watch.end_text(text)

    try:
        while thread.is_alive():
            pass_on(WAIT_SECONDS)
        pass_on(0)
    finally:
        watch.stop()
        thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]
