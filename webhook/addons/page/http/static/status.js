// Says whether what is shown is of now: a word in the head of the page, and a colored banner where it is not.

const connection = document.getElementById("connection");
const banner = document.getElementById("banner");
let since = "";

function say(word, kind) {
  if (!connection) return;
  if (connection.textContent !== word) connection.textContent = word;
  connection.className = kind;
}

function show(kind, ...content) {
  banner.replaceChildren(...content);
  banner.toggleAttribute("data-stale", kind === "stale");
  banner.hidden = !content.length;
}

function strong(text) {
  const element = document.createElement("strong");
  element.textContent = text;
  return element;
}

/** The stream is open. */
export function fresh() {
  since = "";
  say(connection?.dataset.fresh ?? "live", "fresh");
  show("");
}

/** The server says why its state is out of date; "" where it is not. */
export function stale(why) {
  if (since) return;
  say(why ? "out of date" : connection.dataset.fresh, why ? "" : "fresh");
  if (why) show("stale", strong("Out of date: "), why);
  else show("");
}

/** The stream is closed: what is shown is of before. */
export function lost() {
  since ||= new Date().toLocaleTimeString();
  say(`not connected since ${since}`, "lost");
  show("lost", strong(`Not connected since ${since}. `), "What is shown is of before. Trying again.");
}

/** The server does not know this browser, as after its restart. */
export function lostSession() {
  const link = document.createElement("a");
  link.href = `/sign-in?${new URLSearchParams({ address: location.pathname + location.search })}`;
  link.textContent = "Sign in again";
  const how = banner.dataset.tokens ? link : "The page was started again: open the URL that it printed.";
  show("lost", strong("Your session ended. "), `What is shown is as of ${since}. `, how);
}
