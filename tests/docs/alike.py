"""Compares the output on a page with the real output, apart from what differs from one run to the next."""

import re

_NOISE = (
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z?", "TIME"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
    (r"-[0-9a-f]{8,10}(?=-[bcdfghjklmnpqrstvwxz2-9]{5}\b)", "-TEMPLATE"),  # of a Deployment's pods
    (r"-[bcdfghjklmnpqrstvwxz2-9]{5}\b", "-MADEUP"),  # what the API server ends a generateName with
    (r"\b(?:\d+d)?(?:\d+h)?(?:\d+m)?\d+s\b|\b\d+[dhm](?:\d+[hm])?\b(?= |$)", "AGE"),
    (r'(?<="duration_ms":)[\d.]+', "MILLISECONDS"),
    (r'(?<="resourceVersion":)"\d+"', "VERSION"),
    (r"(?<= )[a-z0-9-]+_[0-9a-f-]{36}", "HOLDER"),  # of a Lease
    (r"127\.0\.0\.1:\d+/open\?token=\S+", "PAGE"),  # its port and its token
    (r"[ \t]+$", ""),
    (r" {2,}", "  "),  # columns are as wide as what is in them
)


def plain(text: str) -> str:
    """The text with placeholders for what differs between runs."""
    for pattern, stand_in in _NOISE:
        text = re.sub(pattern, stand_in, text, flags=re.MULTILINE)
    return text.strip("\n")


def is_alike(shown: str, printed: str) -> bool:
    """Whether a page shows this output; on a page a line `...` stands for lines, `…` for part of one."""
    lines = (
        r"(?:.*\n)*" if line.strip() == "..." else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in plain(shown).splitlines()
    )
    return re.fullmatch("".join(lines), plain(printed) + "\n") is not None
