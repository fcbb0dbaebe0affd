"""To be imported first: Ctrl-C ends the process without a traceback until main() takes over."""

import signal

if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
