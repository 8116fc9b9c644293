// Fills the elements that an event of the server names. The server has escaped the markup, and
// the policy of the page runs no script in it.
const status = document.getElementById("status");
const say = (text) => { if (status.textContent !== text) status.textContent = text; };
const events = new EventSource("/dashboard/events" + location.search);

events.onopen = () => say("Live");
events.onmessage = (e) => {
  for (const [id, markup] of Object.entries(JSON.parse(e.data))) {
    const parsed = new DOMParser().parseFromString(markup, "text/html");
    document.getElementById(id)?.replaceChildren(...parsed.body.childNodes);
  }
};

// Streams end by themselves after a while. Only when the next one does not open in time has the
// connection been lost.
let lost;
events.onerror = () => {
  clearTimeout(lost);
  if (events.readyState === EventSource.CLOSED) {
    say("Not live: reload the page");
    return;
  }
  lost = setTimeout(() => { if (events.readyState !== EventSource.OPEN) say("Connection lost, trying again"); }, 5000);
};
