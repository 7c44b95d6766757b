"""What a run says, before anybody judges it: pure functions of a `Run` that several rules build on."""
