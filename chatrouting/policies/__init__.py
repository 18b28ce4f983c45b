"""What failures mean and when to come back: pure functions over exceptions and headers.

In come exceptions, response headers and decoded error bodies; out go a `Failure`, a number of
seconds, a yes or no. No waiting, no clock, no state: `now` is an argument. Routers ask these for
every failed attempt, adapters when they translate an SDK's error. The next room is `adapters/`.
"""
