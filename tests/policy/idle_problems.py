"""Problems of what a policy says about idle GPUs, with their messages; test_problems.py runs them."""

IDLE = "idle: {prometheus: {url: 'http://p:9090'}, series: {job: dcgm}%s}"
TEAM = "teams: [{name: a, namespaces: [a], idle: %s}]"

IDLE_PROBLEMS = {
    "no Prometheus": ("idle: {series: {job: dcgm}}", "3: idle.prometheus: required: Where utilization is read"),
    "no series of the exporter": (
        "idle: {prometheus: {url: 'http://p:9090'}}",
        "3: idle.series: required: Labels, with their values, of the exporter's own series, such as job: "
        "nvidia-dcgm-exporter. Series without them count for nothing",
    ),
    "a URL without a scheme": (
        "idle: {prometheus: {url: 'p:9090'}, series: {job: dcgm}}",
        '3: idle.prometheus.url: expected a URL such as https://prometheus.monitoring.svc:9090, got "p:9090"',
    ),
    "a URL with a password": (
        "idle: {prometheus: {url: 'http://me:x@p:9090'}, series: {job: dcgm}}",
        "3: idle.prometheus.url: expected a URL such as https://prometheus.monitoring.svc:9090, "
        'got "http://me:x@p:9090"',
    ),
    "a bound above all use": (
        IDLE % ", below: 101%",
        '3: idle.below: expected a percentage from 1% to 100%, got "101%"',
    ),
    "a bound of nothing": (
        IDLE % ", below: 0",
        "3: idle.below: expected a percentage from 1% to 100%, got the number 0",
    ),
    "a time that is too short": (IDLE % ", for: 4s", "3: idle.for: expected from 5s to 1440m, got 4s"),
    "a time of few readings": (
        IDLE % ", for: 10m, interval: 5m",
        "3: idle: for is 600s, less than five readings at an interval of 300s",
    ),
    "an unknown action": (
        IDLE % ", actions: [kill]",
        '3: idle.actions[0]: expected one of report, prefer, demote, evict; got "kill"',
    ),
    "a label that is none": (
        IDLE % ", labels: {pod: [exported-pod]}",
        '3: idle.labels.pod[0]: expected at most 253 letters, digits and _, such as job; got "exported-pod"',
    ),
    "a metric that is an expression": (
        IDLE % ", metrics: [{name: 'max(x)'}]",
        '3: idle.metrics[0].name: expected at most 253 letters, digits, _ and :; got "max(x)"',
    ),
    "a team's time": (TEAM % "{for: 25h}", "3: teams[0].idle.for: expected from 5s to 1440m, got 90000s"),
    "a team's unknown field": (
        TEAM % "{notice: 1m}",
        "3: teams[0].idle.notice: unknown field; known here: below, for, actions",
    ),
}
