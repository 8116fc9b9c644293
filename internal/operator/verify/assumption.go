// SPDX-License-Identifier: Apache-2.0

package verify

import "overdue/internal/broker/quirk"

// A Mark is how certain an assumption is.
type Mark string

// The marks of docs/internals/servicebus.md.
const (
	Documented Mark = "A" // Microsoft's documentation, or a live test of an official SDK
	ReliedOn   Mark = "B" // the source of an official SDK, or a wire trace
	Reported   Mark = "C" // an issue, or a single observer
	Inferred   Mark = "D" // our inference
)

// An Assumption is something that a promise of Overdue rests on and that only the service can
// confirm.
type Assumption struct {
	ID         string
	What       string // what is assumed
	Mark       Mark
	Source     string
	Guarantees string // that rest on it, as "G3, G6"; "" means that only the cost does
	Otherwise  string // what the program does if it is otherwise
	Quirk      quirk.Set

	operations int // of the trial, about
	try        func(*trial) answer
	untried    string // why there is no trial
}

// Tried reports whether there is a trial.
func (a *Assumption) Tried() bool { return a.try != nil }

// Assumptions has all of them, the least certain of each group first.
var Assumptions = []Assumption{
	{
		ID: "receive-expires-all", Mark: Inferred, Guarantees: "G3", Quirk: quirk.FlushHead,
		What:      "One receive with one credit expires every overdue message, even behind the first live one.",
		Source:    "docs: message browsing says that a receive cleans up, but not how far; in each test and post, the expired messages precede the live ones",
		Otherwise: "A check follows each nudge, and a scan expires the remaining messages. It costs more operations, and releases the live messages before them.",
		try:       receiveExpiresAll, operations: 13,
	},
	{
		ID: "cleanup-at-once", Mark: Inferred, Guarantees: "G3, G7", Quirk: quirk.CleanupLate,
		What:      "When the broker answers a receive, the messages that it expires have left the queue.",
		Source:    "docs: message browsing calls the removal asynchronous; Python live tests wait 10 s for the dead letter",
		Otherwise: "G3 and G7 hold: the monitor checks a message that a nudge leaves in place until it is gone. Its event comes with its dead letter, up to 3 s late. A scan may follow in between, which costs operations and releases the messages before it. While somebody drains the dead-letter queue, such a message looks like one that a consumer holds, and the verdict may be unknown.",
		try:       cleanupAtOnce, operations: 9,
	},
	{
		ID: "expiry-is-lazy", Mark: Documented, Quirk: quirk.ExpiresAlone,
		What:      "While nobody receives, an overdue message stays in its queue for at least a minute after its deadline.",
		Source:    "docs: message expiration; azure-docs 74821 saw the opposite once",
		Otherwise: "The service itself dead-letters messages. The events are the same, and nudges find nothing.",
		try:       expiryIsLazy, operations: 6,
	},
	{
		ID: "locked-does-not-expire", Mark: Documented, Guarantees: "G4",
		What:      "A locked message does not expire. It expires at once when it is abandoned after its time to live.",
		Source:    "docs: message expiration",
		Otherwise: "Nothing changes in Overdue: the service takes a message from its consumer without Overdue too.",
		try:       lockedDoesNotExpire, operations: 10,
	},
	{
		ID: "release-keeps-count", Mark: Documented, Guarantees: "G6", Quirk: quirk.ReleaseCounts,
		What:      "The outcome released returns a message without counting a delivery.",
		Source:    "the service team in amqpnetlite 342; the SDKs of .NET, Java and Python rely on it; one reporter disagreed",
		Otherwise: "G6 does not hold for delivery counts: each nudge or scan that meets a live message counts a delivery of it. Raise MaxDeliveryCount.",
		try:       releaseKeepsCount, operations: 6,
	},
	{
		ID: "release-keeps-place", Mark: ReliedOn, Guarantees: "G6", Quirk: quirk.ReleaseLast,
		What:      "A released message returns to its old place, before younger ones, unless a receive takes these before the release arrives.",
		Source:    ".NET live test: SessionOrderingIsGuaranteed; azure-amqp 252 relies on it; 30,000 messages in order in azure-sdk-for-net 41930; azure-sdk-for-net 35846 disagrees, with such a receive",
		Otherwise: "G6 does not hold for the order: a consumer gets a live message later if a nudge or scan meets it. In any case, a consumer that receives during a nudge gets the next message first.",
		try:       releaseKeepsPlace, operations: 9,
	},
	{
		ID: "dead-letter-number", Mark: Documented, Guarantees: "G7", Quirk: quirk.DeadLettersRenumbered,
		What:      "A dead letter keeps its sequence number.",
		Source:    "docs: message sequencing; one probe of a live namespace",
		Otherwise: "G7 holds as if somebody drained the dead-letter queue: events have the evidence expired, and some verdicts are unknown. A message that a consumer settles during a nudge may be notified.",
		try:       deadLetterNumber, operations: 10,
	},
	{
		ID: "dead-letter-stamp", Mark: Documented, Guarantees: "G7", Quirk: quirk.DeadLettersRestamped,
		What:      "A dead letter keeps its enqueued time, and so the deadline in its event is right.",
		Source:    "one probe of a live namespace",
		Otherwise: "As with other numbers. The event has the original stamp and deadline of the message.",
		try:       deadLetterStamp, operations: 6,
	},
	{
		ID: "dead-letter-at-once", Mark: Inferred, Guarantees: "G7", Quirk: quirk.DeadLettersLate,
		What:      "A dead letter can be read as soon as its message has left its queue.",
		Source:    "Python live tests find it within 10 s after the receive; nothing finer is known",
		Otherwise: "G7 holds for dead letters that are up to a second late: the monitor searches again after that time before it counts a message as received. With later ones, a missed deadline counts as met or unknown.",
		try:       deadLetterAtOnce, operations: 9,
	},
	{
		ID: "peek-shows-expired", Mark: Documented, Guarantees: "G3, G7", Quirk: quirk.PeekHidesExpired,
		What:      "A peek shows an expired message that has not been moved yet.",
		Source:    "docs: message browsing",
		Otherwise: "G3 and G7 do not hold: the monitor counts an expired message as received or unknown, and does not nudge for it. Do not use Overdue there.",
		try:       peekShowsExpired, operations: 4,
	},
	{
		ID: "peek-shows-locked", Mark: Documented, Guarantees: "G4, G7", Quirk: quirk.PeekHidesLocked,
		What:      "A peek shows a message that a consumer has locked.",
		Source:    "docs: message browsing; Go live: TestReceiverDetachWithPeekLock",
		Otherwise: "G4 and G7 hold only for messages that nobody holds at their deadline. A held message counts as received or unknown. When its lock lapses, the broker expires it at the next receive, without a notification.",
		try:       peekShowsLocked, operations: 5,
	},
	{
		ID: "peek-page", Mark: Documented, Quirk: quirk.PeekShort,
		What:      "A peek of small messages returns the requested number, up to 250.",
		Source:    "docs: message browsing; azure-sdk-for-python 26643; the service team in 39459: it may return fewer",
		Otherwise: "A search continues until a page is empty, which costs operations on long queues.",
		try:       peekPage, operations: 251,
	},
	{
		ID: "schedule-precise", Mark: Inferred, Guarantees: "G3", Quirk: quirk.ScheduleLate,
		What:      "A scheduled message becomes active at most 200 ms after its time, on an idle queue.",
		Source:    "docs: message sequencing promises no accuracy; azure-sdk-for-net 36323 saw more than a few hundred milliseconds",
		Otherwise: "Lag grows by the same time. After a restart of a monitor, an event may come twice.",
		try:       schedulePrecise, operations: 9,
	},
	{
		ID: "schedule-not-early", Mark: Documented, Guarantees: "G3",
		What:      "A scheduled message never becomes active before its time, by its own stamp.",
		Source:    "live tests of JS and Python, to the millisecond",
		Otherwise: "The monitor schedules an early companion again: it is a wake-up, not a verdict.",
		try:       scheduleNotEarly, operations: 9,
	},
	{
		ID: "batch-scheduled", Mark: ReliedOn, Guarantees: "G3", Quirk: quirk.BatchUnscheduled,
		What:      "The messages of one batch are scheduled, each by its own annotation.",
		Source:    "NServiceBus.Transport.AzureServiceBus puts delayed messages into one batch",
		Otherwise: "Companions become due at once. The monitor schedules each again, and they return at once, as fast as the namespace answers. G3 holds until it throttles. Do not use Overdue there.",
		try:       batchScheduled, operations: 4,
	},
	{
		ID: "cancel-all-or-none", Mark: Reported, Quirk: quirk.CancelPartial,
		What:      "A request that cancels several scheduled messages fails as a whole if one of them is gone.",
		Source:    "azure-service-bus 239: it fails, and names the number, but not the fate of the others",
		Otherwise: "Both answers work. If such a request fails, its companions become due, and cost a check each.",
		try:       cancelAllOrNone, operations: 6,
	},
	{
		ID: "stamps-in-milliseconds", Mark: ReliedOn, Guarantees: "G2, G3, G7", Quirk: quirk.StampsSeconds,
		What:      "The enqueued time has a resolution of a millisecond.",
		Source:    "its type is an AMQP timestamp",
		Otherwise: "G3 and G7 hold. Two measurements of the clock show it. Then windows begin on the whole second, there are no slots, and deadlines are kept up to a second later. By true time, a message may expire up to a second early, but never by its visible stamp.",
		try:       stampsInMilliseconds, operations: 11,
	},
	{
		ID: "activation-restamps", Mark: Documented, Guarantees: "G2, G3",
		What:      "A scheduled message gets a new sequence number and a new enqueued time when it becomes active.",
		Source:    "docs: message sequencing; one probe of a live namespace",
		Otherwise: "Overdue reads the broker's clock from that stamp. If it is older, deadlines are noticed late, never early.",
		try:       activationRestamps, operations: 5,
	},
	{
		ID: "drain-answered", Mark: ReliedOn, Guarantees: "G3, G6", Quirk: quirk.DrainUnanswered,
		What:      "The broker answers a receiver that drains its credit.",
		Source:    "the SDKs of JavaScript, .NET and Python wait for it",
		Otherwise: "A nudge waits 2 s for the answer and then closes its link, which ends the credit. So each nudge takes 2 s longer, and a message behind others may expire a minute late. A live message that arrives while the link closes stays locked, which counts a delivery.",
		try:       drainAnswered, operations: 2,
	},
	{
		ID: "default-caps", Mark: Documented, Guarantees: "G2, G3",
		What:      "The default time to live of a queue applies to messages without one, and caps that of others.",
		Source:    "docs: message expiration; nothing says whether a lower default applies to messages that already wait",
		Otherwise: "Overdue computes deadlines from it. A nudge does not expire a message that outlives it; a scan dead-letters it.",
		try:       defaultCaps, operations: 7,
	},
	{
		ID: "deferred-stays", Mark: Documented, Guarantees: "G3",
		What:      "A receive does not expire a deferred message. A request for its number does.",
		Source:    "docs: deferral; the service team in azure-sdk-for-net 30252",
		Otherwise: "If a receive expires it, its event comes from the dead letter as for any other message.",
		try:       deferredStays, operations: 9,
	},
	{
		ID: "session-filter", Mark: ReliedOn, Guarantees: "G3",
		What:      "A session is accepted with a described filter, and a peek without a session shows the messages of all.",
		Source:    "Go session_receiver.go; the echo of the service was not seen. For the peek: azure-sdk-for-net 10722; in azure-sdk-for-js 7903 the service team does not guarantee it, and in 12450 it is sometimes empty",
		Otherwise: "The monitor repeats an empty search before a verdict. If the service refuses such peeks, deadlines of entities with sessions are not kept, and the log says why.",
		try:       sessionFilter, operations: 6,
	},
	{
		ID: "forward-renumbers", Mark: Documented, Guarantees: "G3",
		What:      "A forwarded message is enqueued again at its target, with its message-id.",
		Source:    "docs: auto-forwarding; x-opt-enqueue-sequence-number in the protocol guide",
		Otherwise: "The monitor follows a forward by message-id and window. Otherwise the verdict is unknown, and counted.",
		try:       forwardRenumbers, operations: 4,
	},
	{
		ID: "partition-numbers", Mark: Documented, Guarantees: "G3",
		What:      "In a partitioned queue, the top 16 bits of a sequence number are the partition, and numbers rise within it.",
		Source:    "docs: message sequencing; one probe of a live namespace",
		Otherwise: "The monitor recognizes numbers of partitions and searches without their order. With other numbers it may count a message as received.",
		try:       partitionNumbers, operations: 24,
	},
	{
		ID: "addresses", Mark: Inferred, Guarantees: "G10",
		What:      "A queue with slashes, dots and underscores has a $management node, and a percent sign is not decoded in an address.",
		Source:    "a refusal of the service: segments have only letters, digits, periods, hyphens and underscores; nothing says how it reads an escaped address",
		Otherwise: "The endpoints refuse every address with a percent sign or a segment of dots, so no client gets around the rights of an entity.",
		try:       addresses, operations: 3,
	},
	{
		ID: "attach-behind-begin", Mark: ReliedOn, Guarantees: "all",
		What:      "An attach may follow the begin of its session before the answer to that.",
		Source:    "AMQP 1.0 part 2, section 2.5.5; Microsoft.Azure.Amqp, which the SDK of .NET uses, does so",
		Otherwise: "No link of Overdue opens, and each trial of this table fails.",
		untried:   "each other trial opens links in this way",
	},
	{
		ID: "tokens-at-once", Mark: ReliedOn, Guarantees: "cost only",
		What:      "$cbs accepts several tokens at once over one pair of links.",
		Source:    "Microsoft.Azure.Amqp, AmqpCbsLink",
		Otherwise: "After the first failure, Overdue sends one token at a time on that connection, so a monitor of many queues starts more slowly.",
		untried:   "Overdue detects it",
	},
	{
		ID: "odd-targets", Mark: ReliedOn, Guarantees: "G10",
		What:      "A receiver may state any target; only its source determines the entity.",
		Source:    "the SDKs of .NET and JavaScript state an arbitrary identifier",
		Otherwise: "The endpoint classifies a link by role, source and target together, and refuses links that its table does not list.",
		untried:   "the proxy refuses such links whatever the service does",
	},
	{
		ID: "throttling", Mark: Documented, Guarantees: "G8",
		What:      "A throttled operation fails with com.microsoft:server-busy and can be repeated after 10 s.",
		Source:    "docs: throttling",
		Otherwise: "Overdue repeats every operation that fails without a final condition, with growing pauses.",
		untried:   "it would throttle other users of the namespace",
	},
	{
		ID: "limits", Mark: Documented, Guarantees: "G10",
		What:      "5,000 concurrent receives on an entity, 5,000 connections, 128 characters of a message-id, 4,500 messages of a batch.",
		Source:    "docs: quotas; azure-service-bus 397 for the batch",
		Otherwise: "Overdue repeats and counts operations that exceed a quota. A batch of companions has at most 128 KiB, far fewer than 4,500 messages.",
		untried:   "it would cost more than all other trials together",
	},
}
