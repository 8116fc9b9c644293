// SPDX-License-Identifier: Apache-2.0

import java.util.List;

/** Scenarios with the Java SDK. Arguments: the names of those to run; none means all. */
public final class Main {
    private Main() {}

    public static void main(String[] args) throws Exception {
        Endpoints.trust();
        Locks.add(); // first: they wait longest
        Messages.add();
        Settle.add();
        Schedule.add();
        Sessions.add();
        Topics.add();
        Transactions.add();
        Endpoints.add();
        Faults.add();
        Harness.run(List.of(args));
    }
}
