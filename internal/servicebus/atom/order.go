// SPDX-License-Identifier: Apache-2.0

package atom

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"slices"
)

// Elements are those of the descriptions of entities, in the order of the service. It reads them
// like a data contract of .NET: what stands out of order it keeps where it is and shows in later
// answers, but does not apply. Sources: azure-sdk-for-js PR 14692, azure-sdk-for-java PR 37353.
var Elements = map[string][]string{
	"QueueDescription": {
		"LockDuration", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "RequiresSession", "DefaultMessageTimeToLive",
		"DeadLetteringOnMessageExpiration", "DuplicateDetectionHistoryTimeWindow", "MaxDeliveryCount", "EnableBatchedOperations",
		"SizeInBytes", "MessageCount", "IsAnonymousAccessible", "AuthorizationRules", "Status", ForwardTo,
		"CreatedAt", "UpdatedAt", "AccessedAt", "UserMetadata", "SupportOrdering", "CountDetails", "AutoDeleteOnIdle",
		"EnablePartitioning", "EntityAvailabilityStatus", ForwardDeadLettersTo, "EnableExpress", "MaxMessageSizeInKilobytes",
	},
	"TopicDescription": {
		"DefaultMessageTimeToLive", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "DuplicateDetectionHistoryTimeWindow",
		"EnableBatchedOperations", "SizeInBytes", "FilteringMessagesBeforePublishing", "IsAnonymousAccessible", "AuthorizationRules",
		"Status", "CreatedAt", "UpdatedAt", "AccessedAt", "UserMetadata", "SupportOrdering", "CountDetails", "SubscriptionCount",
		"SqlFilterCount", "CorrelationFilterCount", // no recording has them: they stand where Python's model has them
		"AutoDeleteOnIdle", "EnablePartitioning", "EntityAvailabilityStatus", "EnableSubscriptionPartitioning", "EnableExpress",
		"MaxMessageSizeInKilobytes",
	},
	"SubscriptionDescription": {
		"LockDuration", "RequiresSession", "DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration",
		"DeadLetteringOnFilterEvaluationExceptions", "DefaultRuleDescription", "MessageCount", "MaxDeliveryCount",
		"EnableBatchedOperations", "Status", ForwardTo, "CreatedAt", "UpdatedAt", "AccessedAt", "UserMetadata", "CountDetails",
		ForwardDeadLettersTo, "AutoDeleteOnIdle", "EntityAvailabilityStatus", "IsClientAffine",
	},
}

// An Order follows the elements of one description.
type Order struct {
	rest []string // the elements that can still be applied
	last string
}

// OrderOf returns the order of the elements of a description of that name.
func OrderOf(description string) Order { return Order{rest: Elements[description]} }

// Applies reports whether the service applies an element of that name that comes now.
func (o *Order) Applies(name string) bool {
	i := slices.Index(o.rest, name)
	if i >= 0 {
		o.last, o.rest = name, o.rest[i+1:]
	}
	return i >= 0
}

// Last returns the last element that was applied, "" at the beginning.
func (o *Order) Last() string { return o.last }

// InOrder returns the body of a request with the elements of its description in the order of the
// service, so that it applies them all.
func InOrder(body []byte) []byte {
	return rearrange(body, func(description string, names []string) (elements []int) {
		order := Elements[description]
		for i := range names {
			elements = append(elements, i)
		}
		slices.SortStableFunc(elements, func(a, b int) int {
			return cmp.Compare(slices.Index(order, names[a]), slices.Index(order, names[b]))
		})
		return elements
	})
}

// Holding returns an answer without the elements of its descriptions that do not hold.
func Holding(answer []byte) []byte {
	return rearrange(answer, func(description string, names []string) (elements []int) {
		order := OrderOf(description)
		for i, name := range names {
			if order.Applies(name) {
				elements = append(elements, i)
			}
		}
		return elements
	})
}

// rearrange returns a document with those elements of each description that arrange chooses by
// their names, in that order. The rest of the document stays, also from where it is malformed.
func rearrange(document []byte, arrange func(description string, names []string) []int) []byte {
	var arranged []byte
	copied, d := 0, xml.NewDecoder(bytes.NewReader(document))
	for {
		token, err := d.RawToken()
		if err != nil {
			return append(arranged, document[copied:]...)
		}
		start, ok := token.(xml.StartElement)
		if !ok || Elements[start.Name.Local] == nil {
			continue
		}
		begin := int(d.InputOffset())
		names, elements, end := children(d, document)
		if end < 0 {
			continue
		}
		arranged = append(arranged, document[copied:begin]...)
		for _, i := range arrange(start.Name.Local, names) {
			arranged = append(arranged, elements[i]...)
		}
		copied = end
	}
}

// children reads the elements of the one that d has begun. end is where it ends; it is negative in
// a document that breaks off.
func children(d *xml.Decoder, document []byte) (names []string, elements [][]byte, end int) {
	depth, begin := 0, 0
	for {
		offset := int(d.InputOffset())
		token, err := d.RawToken()
		if err != nil {
			return nil, nil, -1
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth == 1 {
				begin, names = offset, append(names, t.Name.Local)
			}
		case xml.EndElement:
			switch depth--; depth {
			case 0:
				elements = append(elements, document[begin:d.InputOffset()])
			case -1:
				return names, elements, offset
			}
		}
	}
}
