// Fills the elements that an event of the server names. The server has escaped the markup, and
// the policy of the page runs no script in it.
const status = document.getElementById("status");
const say = (text) => { if (status.textContent !== text) status.textContent = text; };
const events = new EventSource("/dashboard/events" + location.search);
let lost;

events.onopen = () => {
  clearTimeout(lost);
  lost = undefined;
  say("Live");
};
events.onmessage = (e) => {
  for (const [id, markup] of Object.entries(JSON.parse(e.data))) {
    const parsed = new DOMParser().parseFromString(markup, "text/html");
    document.getElementById(id)?.replaceChildren(...parsed.body.childNodes);
  }
};

// Streams end by themselves after a while. Only when no other one opens in time has the connection
// been lost. The browser tries more often than that, and each try is another error.
events.onerror = () => {
  if (events.readyState === EventSource.CLOSED) {
    say("Not live: reload the page");
    return;
  }
  lost ??= setTimeout(() => say("Connection lost, trying again"), 5000);
};
