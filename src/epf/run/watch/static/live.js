"use strict";
// What both pages do: listen to the events, say how the connection is, and make elements. Text is set as text, never as markup.
/* exported element, find, listen */

const find = (id) => document.getElementById(id);
const QUIET = 5;  // seconds without an update that are worth a word
let now = null, pulse = null, ahead = 0, connected = false, wasConnected = false, source = null;

function element(tag, text, parent) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// How long a stream has been quiet is counted from its last update, by the server's clock, and told with every pulse. So a page
// that is new, reloads or comes back says the same as one that was there all the time, also while the next post is not due.
function state() {
  if (!connected) return wasConnected ? ["lost", "No connection: trying again"] : ["waiting", "Connecting"];
  if (!now) return ["waiting", "Connecting"];
  if (!now.live) return ["file", `File of ${new Date(1000 * now.clock).toLocaleTimeString("en-GB")}`];
  if (!pulse || pulse.updated === null) return ["quiet", "Waiting for an update"];
  const quiet = Date.now() / 1000 + ahead - pulse.updated;
  return quiet > QUIET ? ["quiet", `No update for ${since(quiet)}`] : ["live", "Live"];
}

function since(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

function status() {
  const mark = find("status"), [name, text] = state();
  mark.dataset.state = name;
  if (mark.textContent !== text) mark.textContent = text;  // what has not changed is not read aloud again
}

// A browser makes six connections to a server, for all its tabs together: a seventh tab would not even load. So a tab that
// nobody sees gives its connection back, and gets everything that it missed when it is seen again.
function listen(take) {
  connect(take);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { connect(take); return; }
    if (source) source.close();
    source = null;
    connected = wasConnected = false;
  });
}

function connect(take) {
  if (source || document.hidden) return;
  source = new EventSource("/events" + location.search);
  source.onopen = () => { connected = wasConnected = true; status(); };
  source.addEventListener("pulse", (event) => {
    pulse = JSON.parse(event.data);
    ahead = pulse.clock - Date.now() / 1000;
    status();
  });
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    now = message.now;
    connected = wasConnected = true;
    take(message);
    status();
  };
  source.onerror = () => {
    connected = false;
    status();
    if (!source || source.readyState !== EventSource.CLOSED) return;
    source = null;
    setTimeout(() => connect(take), 2000);
  };
}

for (const id of ["json", "metrics"]) find(id).href += location.search;
setInterval(status, 1000);
