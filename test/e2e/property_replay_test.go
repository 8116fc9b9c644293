// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// Scenarios that failed once.

// A monitor sought by the order of numbers for ever in a partitioned entity, once it had noticed
// that it was one.
func TestPartitionedQueueThatIsNoticedWhileSeeking(t *testing.T) {
	replay(t, 14269107126455904975, 64)
}

// A scan of a partitioned entity ended at the first message with a higher number, where the monitor
// knew only from the numbers that the entity is partitioned.
func TestPartitionedQueueThatIsScannedWithoutItsDescription(t *testing.T) {
	replay(t, 8065301643202554276, 141)
}

// A search of the dead letters sought the same place for ever: the page there ended before a letter
// that was taken away, which the monitor had kept.
func TestKeptDeadLetterBehindTheLastPage(t *testing.T) { replay(t, 1007, 178) }

// A companion that was written twice was rewritten by a monitor that stopped, after its twin had
// notified.
func TestCompanionThatWasWrittenTwice(t *testing.T) { replay(t, 18, 42) }

// A deferred message without a deadline was received for a default that is newer than it, which
// counted as deliveries.
func TestDeferredMessageThatIsOlderThanTheDefault(t *testing.T) { replay(t, 103, 291) }

// Two dead letters had one message-id, and both companions were given the same one.
func TestDeadLettersWithOneID(t *testing.T) { replay(t, 102, 385) }

// A consumer settled a message that it held right after the nudge for another one.
func TestSettlementRightAfterTheNudgeForAnother(t *testing.T) { replay(t, 62, 115) }

// A message was found late: the default that was removed since its send had limited its deadline.
func TestDeadlineThatAFormerDefaultLimited(t *testing.T) { replay(t, 5001, 59) }

// A message that had expired by a default was taken for received, since a longer one was in force.
func TestMessageThatExpiredByAFormerDefault(t *testing.T) { replay(t, 5001, 236) }

// A scheduled message was taken for one without a deadline: the default was removed before it was
// activated.
func TestScheduledMessageUnderAFormerDefault(t *testing.T) { replay(t, 5007, 96) }

// The dead letter of one message was taken for that of another with the same id and the same stamp.
func TestDeadLettersWithOneIDAndOneStamp(t *testing.T) {
	replay(t, 5008, 284)
	replay(t, 5003, 177)
}

// A deferred message was received once a second, and each time counted as a delivery, to have the
// broker decide about a default that it did not have.
func TestDeferredMessageWithoutTheDefaultThatItsCompanionStates(t *testing.T) {
	replay(t, 5016, 320)
	replay(t, 5017, 390)
}

// A consumer settled a message that it held while a scan waited for it, or over a frozen line, and
// that counted as its expiry. Or nudges had left it in place before.
func TestSettlementWhileTheMonitorWaits(t *testing.T) {
	replay(t, 5011, 217)
	replay(t, 5015, 57)
	replay(t, 5018, 37)
	replay(t, 5019, 336)
}

// A message was taken for that of another session of a partitioned queue, since it had the same id.
// When a consumer settled the other one, nobody watched it any more.
func TestRepeatedIDInTwoSessions(t *testing.T) { replay(t, 10011, 201) }

// Two references took one message, since watches over duplicates had it and another one. When the
// monitor stopped, the other one was left to a companion with a deadline that it did not have.
func TestMessageThatADuplicateHasFound(t *testing.T) { replay(t, 10006, 226) }

// A message expired while a scan waited in its session, a moment after its deadline. The clock of
// the monitor was not measured, and its dead letter was taken away.
func TestMessageThatExpiresDuringAScanOfItsSession(t *testing.T) { replay(t, 10025, 268) }

// A deferred message was given up when the broker delivered it after a new, shorter default. The
// one that its companion states had not ended yet.
func TestDeferredMessageUnderAShorterDefault(t *testing.T) { replay(t, 9401, 386) }
