"""What every test may use."""

pytest_plugins = ["tests.control_plane.fixtures"]
