"""Views of a served page in a window of the browser, and what the tests of several modules look at in them."""

LIVE = "() => document.getElementById('connection')?.textContent === 'live'"
DARK = {"color_scheme": "dark"}
NARROW = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
WIDE = {"viewport": {"width": 1440, "height": 900}}
OVERFLOWING = """() => [document.documentElement, ...document.querySelectorAll('.scroll')]
    .filter(each => each.scrollWidth > each.clientWidth)
    .map(each => each.getAttribute('aria-label') ?? each.tagName)"""
"""The parts that are wider than their room, the page itself as HTML."""


def opened_at(site, window, path, **options):
    """A window that has the cookie of a site, with a view."""
    opened = window(**options)
    name, _, value = site.cookie.partition("=")
    opened.context.add_cookies([{"name": name, "value": value, "url": site.base}])
    opened.page.goto(site.base + path)
    if path.partition("?")[0] == "/" and options.get("java_script_enabled", True):
        opened.page.wait_for_selector("#map[data-drawn-ms]")
    return opened
