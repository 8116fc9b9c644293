// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"cmp"
	"strconv"

	"github.com/cockroachdb/apd/v3"
)

// decimals and shorter are the arithmetic of System.Decimal: 96 bits, which are 29 digits or 28, up
// to 28 of them behind the point. Halves are rounded to even, and there is no infinity.
var decimals, shorter = decimalContext(29), decimalContext(28)

func decimalContext(digits int32) apd.Context {
	return apd.Context{
		Precision: uint32(digits), MaxExponent: digits - 1, MinExponent: digits - 29, Rounding: apd.RoundHalfEven,
		Traps: apd.DefaultTraps &^ (apd.Subnormal | apd.Underflow),
	}
}

// DecimalValue is a finite decimal number of any size. d must not change any more.
func DecimalValue(d *apd.Decimal) Value { return Value{kind: Decimal, d: d} }

// Decimal returns the number. It must not be changed.
func (v Value) Decimal() *apd.Decimal { return v.d }

// decimal is a numeric value but a float as a decimal.
func (v Value) decimal() *apd.Decimal {
	switch v.kind {
	case Decimal:
		return v.d
	case Uint:
		d := new(apd.Decimal)
		d.Coeff.SetUint64(v.n)
		return d
	}
	return apd.New(v.Int(), 0)
}

func parseDecimal(s string) (Value, bool) {
	d, _, err := decimals.NewFromString(s)
	if err != nil || d.Form != apd.Finite {
		return Value{}, false
	}
	return DecimalValue(d), fitDecimal(d) == nil
}

// decimalOfFloat keeps 15 digits, as the conversion of .NET does.
func decimalOfFloat(f float64) (Value, bool) {
	v, ok := parseDecimal(strconv.FormatFloat(f, 'E', 14, 64))
	if ok {
		v.d.Reduce(v.d)
		ok = fitDecimal(v.d) == nil
	}
	return v, ok
}

// fitDecimal rounds to 96 bits, and writes zeros before the point out: a
// System.Decimal has no exponent above 0.
func fitDecimal(d *apd.Decimal) error {
	var err error
	if d.Coeff.BitLen() > 96 {
		_, err = shorter.Round(d, d)
	}
	if err == nil && d.Exponent > 0 {
		_, err = decimals.Quantize(d, d, 0)
	}
	return err
}

func calculateDecimals(op byte, a, b *apd.Decimal) (Value, error) {
	calculate := map[byte]func(d, x, y *apd.Decimal) (apd.Condition, error){
		'+': decimals.Add, '-': decimals.Sub, '*': decimals.Mul, '/': decimals.Quo, '%': decimals.Rem,
	}[op]
	d := new(apd.Decimal)
	_, err := calculate(d, a, b)
	if op == '/' {
		d.Reduce(d) // which comes with all its digits
	}
	if err = cmp.Or(err, fitDecimal(d)); err != nil {
		return Value{}, evalErrorf("%s %c %s: %v", a, op, b, err)
	}
	return DecimalValue(d), nil
}
