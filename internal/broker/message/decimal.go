// SPDX-License-Identifier: Apache-2.0

package message

import (
	"github.com/cockroachdb/apd/v3"

	"overdue/internal/amqp"
)

// A decimalForm is a width of IEEE 754-2008 in its binary integer encoding: a
// sign, an exponent, and a coefficient of so many digits. A coefficient that
// needs more bits than there are is written without its first three, which are
// 100 (section 3.5.2).
type decimalForm struct {
	exponentBits uint
	bias, digits int64
}

var (
	decimal32  = decimalForm{exponentBits: 8, bias: 101, digits: 7}
	decimal64  = decimalForm{exponentBits: 10, bias: 398, digits: 16}
	decimal128 = decimalForm{exponentBits: 14, bias: 6176, digits: 34}
)

// Microsoft's AMQP library shifts the upper part of a decimal128's exponent by
// nine bits, where seven are below it, and reads it back that way. By the
// standard, what it writes is smaller than 10^-4500.
const dotNetExponent = 0x0c

func isDotNet(d amqp.Decimal128) bool {
	return d[0]&0x7f == dotNetExponent && d[1]&1 == 0 && d[2] == 0 && d[3] == 0
}

// dotNetDecimal returns n as Microsoft's AMQP library writes it, and false for
// what no System.Decimal is: more than 96 bits, or a scale beyond 0 to 28.
func dotNetDecimal(n *apd.Decimal) (d amqp.Decimal128, ok bool) {
	ok = n.Exponent <= 0 && n.Exponent >= -28 && n.Coeff.BitLen() <= 96 && decimal128.put(d[:], n)
	d[0] = d[0]&0x80 | dotNetExponent
	return d, ok
}

// decimalNumber returns the number that a decimal of any width is, nil for an
// infinity, for what is no number, and for other types.
func decimalNumber(v any) *apd.Decimal {
	switch v := v.(type) {
	case amqp.Decimal32:
		return decimal32.number(v[:])
	case amqp.Decimal64:
		return decimal64.number(v[:])
	case amqp.Decimal128:
		n := decimal128.number(v[:])
		if isDotNet(v) {
			n.Exponent = dotNetExponent<<9 + int32(v[1]>>1) - int32(decimal128.bias)
		}
		return n
	}
	return nil
}

// wireDecimal keeps the type of was where n fits. Else it is written as the
// service does, whose library is Microsoft's.
func wireDecimal(n *apd.Decimal, was any) any {
	switch was := was.(type) {
	case amqp.Decimal32:
		if ok := decimal32.put(was[:], n); ok {
			return was
		}
	case amqp.Decimal64:
		if ok := decimal64.put(was[:], n); ok {
			return was
		}
	case amqp.Decimal128:
		if ok := !isDotNet(was) && decimal128.put(was[:], n); ok {
			return was
		}
	}
	d, ok := dotNetDecimal(n)
	if !ok {
		decimal128.put(d[:], n)
	}
	return d
}

func (f decimalForm) number(b []byte) *apd.Decimal {
	bits := uint(len(b)*8) - 1 - f.exponentBits // of the coefficient
	implicit := uint64(0)
	if b[0]&0x60 == 0x60 {
		if b[0]&0x78 == 0x78 {
			return nil
		}
		implicit = 4
		bits -= 2
	}
	n := &apd.Decimal{Negative: b[0]&0x80 != 0}
	var all, upper, mask apd.BigInt
	all.SetBytes(b)
	upper.Rsh(&all, bits)
	n.Exponent = int32(upper.Uint64()&(1<<f.exponentBits-1)) - int32(f.bias)
	mask.Sub(mask.Lsh(one, bits), one)
	n.Coeff.Or(n.Coeff.Lsh(apd.NewBigInt(int64(implicit)), bits), all.And(&all, &mask))
	if n.NumDigits() > f.digits { // the standard takes it for zero
		return new(apd.Decimal)
	}
	return n
}

var one = apd.NewBigInt(1)

// put writes n into b, and reports whether it fits.
func (f decimalForm) put(b []byte, n *apd.Decimal) bool {
	exponent := int64(n.Exponent) + f.bias
	if n.NumDigits() > f.digits || exponent < 0 || exponent >= 3<<(f.exponentBits-2) {
		return false
	}
	bits := uint(len(b)*8) - 1 - f.exponentBits
	var all, coefficient apd.BigInt
	coefficient.Set(&n.Coeff)
	if coefficient.BitLen() > int(bits) {
		coefficient.Sub(&coefficient, all.Lsh(one, bits))
		bits -= 2
		exponent |= 3 << f.exponentBits
	}
	all.SetInt64(exponent)
	all.Or(all.Lsh(&all, bits), &coefficient)
	all.FillBytes(b)
	if n.Negative {
		b[0] |= 0x80
	}
	return true
}
