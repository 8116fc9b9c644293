// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	firedQueue = "fired"
	publishers = 4
	// rung is how long the lowest queue of the ladder holds a message back, and rungs is the number of
	// queues. Each holds it back twice as long as the one below.
	rung  = 500 * time.Millisecond
	rungs = 6
)

// startRabbitMQ starts RabbitMQ out of the folder that install.sh unpacks it to. All that it
// writes, the name server of Erlang and the secret of its cluster are its own.
func startRabbitMQ(ctx context.Context, dir string) (_ *amqp.Connection, version string, stop func() error, err error) {
	folder, err := installed("rabbitmq")
	if err != nil {
		return nil, "", nil, err
	}
	var ports [3]string
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, "", nil, err
		}
	}
	files := map[string]string{
		"rabbitmq-env.conf": "", "enabled_plugins": "[].\n",
		"rabbitmq.conf": "listeners.tcp.1 = 127.0.0.1:" + ports[0] + "\nlog.console.level = warning\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, "", nil, fmt.Errorf("configure RabbitMQ: %w", err)
		}
	}
	env := append(os.Environ(),
		"HOME="+dir, // of the secret
		"ERL_EPMD_PORT="+ports[1], "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=overdue-"+ports[0]+"@localhost",
		"RABBITMQ_DIST_PORT="+ports[2],
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE="+filepath.Join(dir, "rabbitmq-env.conf"),
		"RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "enabled_plugins"),
		"RABBITMQ_MNESIA_BASE="+filepath.Join(dir, "mnesia"),
		"RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
		"RABBITMQ_LOGS=-",
		"RUNNING_UNDER_SYSTEMD=1", // so that the script becomes the broker, and SIGTERM reaches it
	)
	// Were it not there, RabbitMQ would start one that stays.
	stopNames, err := command{args: []string{"epmd", "-port", ports[1], "-address", "127.0.0.1"}, env: env}.start(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	addr := "127.0.0.1:" + ports[0]
	stopBroker, err := command{args: []string{filepath.Join(folder, "sbin", "rabbitmq-server")}, env: env, addr: addr}.start(ctx)
	if err != nil {
		return nil, "", nil, errors.Join(err, stopNames())
	}
	stop = func() error { return errors.Join(stopBroker(), stopNames()) }
	conn, err := amqp.Dial("amqp://guest:guest@" + addr + "/")
	if err != nil {
		return nil, "", nil, errors.Join(fmt.Errorf("connect to RabbitMQ: %w", err), stop())
	}
	return conn, fmt.Sprintf("RabbitMQ %v", conn.Properties["version"]), stop, nil
}

// installed is a folder that install.sh prints by this name.
func installed(name string) (string, error) {
	out, err := exec.Command("../../sdk/install.sh").Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, errMissing)
	}
	for line := range strings.Lines(string(out)) {
		if folder, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return folder, nil
		}
	}
	return "", fmt.Errorf("install.sh prints no folder of %s", name)
}

// measureMessageTTL gives each message a time to live in one queue, which dead-letters it. RabbitMQ
// expires messages at the head of the queue only.
func measureMessageTTL(ctx context.Context, d *deadlines, dir string) (string, error) {
	const waiting = "waiting"
	return measureRabbitMQ(ctx, d, dir, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(waiting, true, false, false, false,
			amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": firedQueue})
		return err
	}, func(ctx context.Context, ch *amqp.Channel, i int) error {
		d.handOver(i)
		return ch.PublishWithContext(ctx, "", waiting, false, false, amqp.Publishing{Body: payload(i),
			Expiration: strconv.FormatInt(d.ttl[i].Milliseconds(), 10)})
	})
}

// measureLadder lets a message wait in those queues whose times to live add up to its own, which is
// rounded up to a rung. Its routing key says which, as in NServiceBus.
func measureLadder(ctx context.Context, d *deadlines, dir string) (string, error) {
	name := func(level int) string { return fmt.Sprintf("level-%d", level) }
	return measureRabbitMQ(ctx, d, dir, func(ch *amqp.Channel) error {
		exchange := func(level int) string {
			if level < 0 {
				return "ladder-end"
			}
			return name(level)
		}
		if err := ch.ExchangeDeclare(exchange(-1), "fanout", true, false, false, false, nil); err != nil {
			return err
		}
		if err := ch.QueueBind(firedQueue, "", exchange(-1), false, nil); err != nil {
			return err
		}
		for level := range rungs {
			if err := ch.ExchangeDeclare(name(level), "topic", true, false, false, false, nil); err != nil {
				return err
			}
			if _, err := ch.QueueDeclare(name(level), true, false, false, false, amqp.Table{
				"x-message-ttl":          (rung << level).Milliseconds(),
				"x-dead-letter-exchange": exchange(level - 1),
			}); err != nil {
				return err
			}
			// The key has a word for each level, the highest first.
			above := strings.Repeat("*.", rungs-1-level)
			if err := ch.QueueBind(name(level), above+"1.#", name(level), false, nil); err != nil {
				return err
			}
			if err := ch.ExchangeBind(exchange(level-1), above+"0.#", name(level), false, nil); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context, ch *amqp.Channel, i int) error {
		steps := int((d.ttl[i] + rung - 1) / rung)
		if steps >= 1<<rungs {
			return fmt.Errorf("a deadline in %v is above the ladder, which reaches to %v", d.ttl[i], rung<<rungs)
		}
		d.handOver(i)
		key := make([]string, rungs)
		for level := range rungs {
			key[rungs-1-level] = strconv.Itoa(steps >> level & 1)
		}
		return ch.PublishWithContext(ctx, name(rungs-1), strings.Join(key, "."), false, false,
			amqp.Publishing{Body: payload(i)})
	})
}

// measureRabbitMQ declares what messages wait in, publishes them, and receives those that fire.
func measureRabbitMQ(ctx context.Context, d *deadlines, dir string, declare func(*amqp.Channel) error,
	publish func(ctx context.Context, ch *amqp.Channel, i int) error) (version string, err error) {
	conn, version, stop, err := startRabbitMQ(ctx, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(), stop()) }()
	channels := make([]*amqp.Channel, publishers+1)
	for i := range channels {
		if channels[i], err = conn.Channel(); err != nil {
			return "", fmt.Errorf("open a channel: %w", err)
		}
	}
	ch := channels[publishers]
	if _, err := ch.QueueDeclare(firedQueue, true, false, false, false, nil); err != nil {
		return "", fmt.Errorf("declare a queue: %w", err)
	}
	if err := declare(ch); err != nil {
		return "", fmt.Errorf("declare queues: %w", err)
	}
	fired, err := ch.ConsumeWithContext(ctx, firedQueue, "", true, false, false, false, nil)
	if err != nil {
		return "", fmt.Errorf("receive: %w", err)
	}
	go func() { // ends with the connection
		for m := range fired {
			d.fire(indexOf(m.Body))
		}
	}()
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	err = d.load(ctx, publishers, 100, func(ctx context.Context, worker, first, end int) error {
		for i := first; i < end; i++ {
			if err := publish(ctx, channels[worker], i); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = d.await(ctx)
	}
	select {
	case reason := <-closed:
		return "", errors.Join(err, fmt.Errorf("RabbitMQ has closed the connection: %w", reason))
	default:
		return version, err
	}
}

// startConfirmingRabbitMQ has a durable queue. Senders share a connection, each has a channel.
func startConfirmingRabbitMQ(ctx context.Context, _ *overdueBuild, dir string) (*runningBroker, error) {
	conn, version, stop, err := startRabbitMQ(ctx, dir)
	if err != nil {
		return nil, err
	}
	end := func() error { return errors.Join(conn.Close(), stop()) }
	const name = "sends"
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDeclare(name, true, false, false, false, nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("declare a queue: %w", err), end())
	}
	return &runningBroker{
		version: version,
		stop:    end,
		open: func(_ context.Context, messages int) (func(context.Context) error, error) {
			ch, err := conn.Channel()
			if err == nil {
				err = ch.Confirm(false)
			}
			if err != nil {
				return nil, err
			}
			m := amqp.Publishing{Body: payload(0), DeliveryMode: amqp.Persistent}
			confirmations := make([]*amqp.DeferredConfirmation, messages)
			return func(ctx context.Context) (err error) {
				for i := range confirmations {
					if confirmations[i], err = ch.PublishWithDeferredConfirmWithContext(ctx, "", name, false, false, m); err != nil {
						return err
					}
				}
				for _, c := range confirmations {
					if confirmed, err := c.WaitContext(ctx); err != nil || !confirmed {
						return errors.Join(errors.New("a message was not confirmed"), err)
					}
				}
				return nil
			}, nil
		},
	}, nil
}
