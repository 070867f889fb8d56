"""Problems of what a policy says about the queue, with their messages; test_problems.py runs them."""

TEAM = "teams: [{name: a, namespaces: [a]%s}]"

QUEUE_PROBLEMS = {
    "an unknown effect of a limit": (
        TEAM % ", onLimit: queued",
        '3: teams[0].onLimit: expected one of reject, queue; got "queued"; did you mean "queue"?',
    ),
    "an unknown effect of no room": (
        TEAM % ", onNoRoom: reject",
        '3: teams[0].onNoRoom: expected one of wait, queue; got "reject"',
    ),
    "an unknown default": (
        "defaults: {onLimit: wait}",
        '3: defaults.onLimit: expected one of reject, queue; got "wait"',
    ),
    "a weight of zero": (
        TEAM % ", weight: 0",
        "3: teams[0].weight: expected a weight above 0, and at most 1,000,000, got 0",
    ),
    "a negative weight": (
        TEAM % ", weight: -1.5",
        "3: teams[0].weight: expected a weight above 0, and at most 1,000,000, got -1.5",
    ),
    "a weight beyond every other": (
        TEAM % ", weight: 1000001",
        "3: teams[0].weight: expected a weight above 0, and at most 1,000,000, got 1000001",
    ),
    "a weight that is no number": (
        TEAM % ", weight: much",
        '3: teams[0].weight: expected a weight such as 2, 0.5 or "1/3", got "much"',
    ),
    "a weight that is infinite": (
        TEAM % ", weight: .inf",
        '3: teams[0].weight: expected a weight such as 2, 0.5 or "1/3", got the number inf',
    ),
    "a weight that is a truth value": (
        TEAM % ", weight: true",
        '3: teams[0].weight: expected a weight such as 2, 0.5 or "1/3", got the word true',
    ),
    "a weight left empty": (
        TEAM % ", weight: ",
        "3: teams[0].weight: has no value; write one, or leave the field out",
    ),
    "a negative depth": ("queue: {depth: -1}", "3: queue.depth: expected 0 or more, got the number -1"),
    "a depth that no etcd holds": (
        "queue: {depth: 100001}",
        "3: queue.depth: expected 100000 or less, got the number 100001",
    ),
    "a negative depth of a team": (
        TEAM % ", queueDepth: -1",
        "3: teams[0].queueDepth: expected 0 or more, got the number -1",
    ),
    "too short a time for a gang": (
        "queue: {gangTimeout: 9s}",
        "3: queue.gangTimeout: expected from 10s to 24h, got 9s",
    ),
    "too long a time for a gang": (
        "queue: {gangTimeout: 25h}",
        "3: queue.gangTimeout: expected from 10s to 24h, got 90000s",
    ),
    "a half-life in days": (
        "queue: {halfLife: 7d}",
        '3: queue.halfLife: expected a duration such as 30s, 10m or 1h30m, got "7d"',
    ),
    "a time to be strict after that is none": (
        "queue: {strictAfter: never}",
        '3: queue.strictAfter: expected unlimited or a duration such as 30s, 10m or 1h30m, got "never"',
    ),
    "a level of domains that is no key": (
        "topology: {levels: [zone, a b]}",
        '3: topology.levels[1]: expected a key such as nvidia.com/gpu.product, got "a b": bad name',
    ),
    "a level of domains twice": (
        "topology: {levels: [zone, rack, zone]}",
        "3: topology.levels: zone is listed twice; keep one",
    ),
    "a field of the queue misspelt": (
        "queue: {halflife: 1h}",
        '3: queue.halflife: unknown field; did you mean "halfLife"?',
    ),
}
