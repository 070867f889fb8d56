// What the viewer of the map chose, which is in the address: grouping, order, a team, a node.

const groupBy = document.getElementById("map-group");
const sortBy = document.getElementById("map-sort");
const node = document.getElementById("map-node");
const address = new URL(location.href);

export const choices = {
  get groupBy() {
    return groupBy.value;
  },
  get sortBy() {
    return sortBy.value;
  },
  get node() {
    return node.value.trim().toLowerCase();
  },
  get team() {
    return address.searchParams.get("team") ?? "";
  },
};

/** Whether a node is among those that are looked for. */
export const isFound = (name) => name.toLowerCase().includes(choices.node);

function put(name, value) {
  if (value) address.searchParams.set(name, value);
  else address.searchParams.delete(name);
  history.replaceState(null, "", address);
}

function highlight(team) {
  put("team", team);
  for (const link of document.querySelectorAll("#teams a[data-team]")) {
    const isChosen = link.dataset.team === team;
    if (isChosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    const next = new URL(address);
    if (isChosen) next.searchParams.delete("team");
    else next.searchParams.set("team", link.dataset.team);
    link.href = next;
  }
  for (const link of document.querySelectorAll("a[data-view]")) {
    const view = new URL(link.href);
    if (team) view.searchParams.set("team", team);
    else view.searchParams.delete("team");
    link.href = view;
  }
}

/** Call `moved` after a change of the grouping or order, `painted` after one of the team or node. */
export function onChoice({ moved, painted }) {
  groupBy.addEventListener("change", () => (put("group", groupBy.value === "pool" ? "" : groupBy.value || "none"), moved()));
  sortBy.addEventListener("change", () => (put("sort", sortBy.value === "name" ? "name" : ""), moved()));
  node.addEventListener("input", () => (put("node", node.value.trim()), painted({ finds: true })));
  document.getElementById("map-tools").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("teams").addEventListener("click", (event) => {
    const link = event.target.closest("a[data-team]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    highlight(link.dataset.team === choices.team ? "" : link.dataset.team);
    painted({ finds: false });
  });
}
