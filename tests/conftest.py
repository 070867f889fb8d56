"""What every test may use."""

import signal

from hypothesis import settings

pytest_plugins = ["tests.control_plane.fixtures"]

# a shared machine stalls for longer than any deadline that would still tell something
settings.register_profile("fairgate", deadline=None)
settings.load_profile("fairgate")

# a shell has what it starts in the background ignore Ctrl-C, and the processes of tests would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
