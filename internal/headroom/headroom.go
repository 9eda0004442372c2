// Package headroom lets whoever answers a request bound the memory that the answer
// takes, however deep below the answer is gathered: a place that is about to
// read much, from a record or from a guest, asks first. It counts nothing
// itself; who gave the context its room does, and knows when it is free again.
package headroom

import "context"

type key struct{}

// With returns a context under which take is asked for memory. take must be safe
// for concurrent use; its error is what the request fails with.
func With(ctx context.Context, take func(bytes int64) error) context.Context {
	return context.WithValue(ctx, key{}, take)
}

// Take asks for so many bytes more. Where nobody counts, there is always room.
func Take(ctx context.Context, bytes int64) error {
	take, _ := ctx.Value(key{}).(func(bytes int64) error)
	if take == nil || bytes <= 0 {
		return nil
	}
	return take(bytes)
}
