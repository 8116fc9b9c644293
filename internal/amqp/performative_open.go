// SPDX-License-Identifier: Apache-2.0

package amqp

// Append appends the encoded open.
func (o *Open) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeOpen)
	dst = AppendString(dst, o.ContainerID)
	dst = appendOptional(dst, AppendString, o.Hostname, o.Hostname != "")
	dst = appendOptionalUint(dst, o.MaxFrameSize, o.MaxFrameSize != 0)
	dst = AppendUshort(dst, o.ChannelMax)
	dst = appendOptionalUint(dst, o.IdleTimeout, o.IdleTimeout != 0)
	dst = AppendRaw(dst, o.OutgoingLocales)
	dst = AppendRaw(dst, o.IncomingLocales)
	dst = AppendRaw(dst, o.OfferedCapabilities)
	dst = AppendRaw(dst, o.DesiredCapabilities)
	dst = AppendRaw(dst, o.Properties)
	return EndList(dst, start, 10)
}

// Decode reads an open.
func (o *Open) Decode(r *Reader) error {
	f := composite(r, CodeOpen, "open")
	*o = Open{}
	if f.must("container-id") {
		o.ContainerID = f.label()
	}
	if f.has() {
		o.Hostname = f.label()
	}
	if o.MaxFrameSize = f.uint(DefaultMaxFrameSize); o.MaxFrameSize == 0 {
		f.failf("max-frame-size of 0") // which would be written as absent: no limit
	}
	o.ChannelMax = DefaultChannelMax
	if f.has() {
		o.ChannelMax = f.Ushort()
	}
	o.IdleTimeout = f.uint(0)
	o.OutgoingLocales = f.raw()
	o.IncomingLocales = f.raw()
	o.OfferedCapabilities = f.raw()
	o.DesiredCapabilities = f.raw()
	o.Properties = f.raw()
	return f.done(r)
}

// Append appends the encoded begin.
func (b *Begin) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeBegin)
	if b.HasRemoteChannel {
		dst = AppendUshort(dst, b.RemoteChannel)
	} else {
		dst = AppendNull(dst)
	}
	dst = AppendUint(dst, b.NextOutgoingID)
	dst = AppendUint(dst, b.IncomingWindow)
	dst = AppendUint(dst, b.OutgoingWindow)
	dst = AppendUint(dst, b.HandleMax)
	dst = AppendRaw(dst, b.OfferedCapabilities)
	dst = AppendRaw(dst, b.DesiredCapabilities)
	dst = AppendRaw(dst, b.Properties)
	return EndList(dst, start, 8)
}

// Decode reads a begin.
func (b *Begin) Decode(r *Reader) error {
	f := composite(r, CodeBegin, "begin")
	*b = Begin{}
	if b.HasRemoteChannel = f.has(); b.HasRemoteChannel {
		b.RemoteChannel = f.Ushort()
	}
	b.NextOutgoingID = f.mustUint("next-outgoing-id")
	b.IncomingWindow = f.mustUint("incoming-window")
	b.OutgoingWindow = f.mustUint("outgoing-window")
	b.HandleMax = f.uint(DefaultHandleMax)
	b.OfferedCapabilities = f.raw()
	b.DesiredCapabilities = f.raw()
	b.Properties = f.raw()
	return f.done(r)
}

// Append appends the encoded detach.
func (d *Detach) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeDetach)
	dst = AppendUint(dst, d.Handle)
	dst = AppendBool(dst, d.Closed)
	dst = appendError(dst, d.Error)
	return EndList(dst, start, 3)
}

// Decode reads a detach.
func (d *Detach) Decode(r *Reader) error {
	f := composite(r, CodeDetach, "detach")
	*d = Detach{}
	d.Handle = f.mustUint("handle")
	d.Closed = f.bool()
	d.Error = f.error()
	return f.done(r)
}

// Append appends the encoded end.
func (e *End) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeEnd)
	return EndList(appendError(dst, e.Error), start, 1)
}

// Decode reads an end.
func (e *End) Decode(r *Reader) error {
	f := composite(r, CodeEnd, "end")
	e.Error = f.error()
	return f.done(r)
}

// Append appends the encoded close.
func (c *Close) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeClose)
	return EndList(appendError(dst, c.Error), start, 1)
}

// Decode reads a close.
func (c *Close) Decode(r *Reader) error {
	f := composite(r, CodeClose, "close")
	c.Error = f.error()
	return f.done(r)
}
