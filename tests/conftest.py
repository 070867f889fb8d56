"""What every test may use."""

from hypothesis import settings

pytest_plugins = ["tests.control_plane.fixtures"]

# a shared machine stalls for longer than any deadline that would still tell something
settings.register_profile("fairgate", deadline=None)
settings.load_profile("fairgate")
