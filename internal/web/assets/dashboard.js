// Fills the elements that an event of the server names. The server has escaped the markup, and
// the policy of the page runs no script in it. Elements that stay the same stay in place, so that
// focus and selection do.
const morph = (old, next) => {
  if (old.nodeName !== next.nodeName) {
    old.replaceWith(next);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  fill(old, [...next.childNodes]);
};
const fill = (parent, children) => {
  const before = [...parent.childNodes];
  children.forEach((child, i) => before[i] ? morph(before[i], child) : parent.append(child));
  before.slice(children.length).forEach((node) => node.remove());
};

const status = document.getElementById("status");
const pauseButton = document.getElementById("pause");
const say = (text, state) => {
  if (status.textContent !== text) status.textContent = text;
  status.dataset.state = state;
};
let events, lost;

const connect = () => {
  events = new EventSource(document.body.dataset.events);
  events.onopen = () => {
    clearTimeout(lost);
    lost = undefined;
    say("Live", "live");
  };
  events.onmessage = (e) => {
    for (const [id, markup] of Object.entries(JSON.parse(e.data))) {
      const element = document.getElementById(id);
      if (element) fill(element, [...new DOMParser().parseFromString(markup, "text/html").body.childNodes]);
    }
  };
  // Streams end by themselves after a while. Only when no other one opens in time has the connection
  // been lost. The browser tries more often than that, and each try is another error.
  events.onerror = () => {
    if (events.readyState === EventSource.CLOSED) {
      say("Not live: reload the page", "lost");
      return;
    }
    lost ??= setTimeout(() => say("Connection lost, trying again", "lost"), 5000);
  };
};

if (document.body.dataset.events) {
  pauseButton.hidden = false;
  pauseButton.onclick = () => {
    if (events) {
      events.close();
      clearTimeout(lost);
      events = lost = undefined;
      say("Paused", "paused");
    } else {
      connect();
    }
    pauseButton.textContent = events ? "Pause" : "Go on";
  };
  connect();
}
