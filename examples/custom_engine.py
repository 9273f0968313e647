"""A whole serving loop on tt-scheduler alone: phases, decode interleave, stable rows. No vLLM, no device."""

from dataclasses import dataclass, field

from tt_scheduler import Demand, InterleaveOptions, LaneRows, Outcome, Pass, Phase, PhasePolicy

ROWS, CHUNK = 4, 8


@dataclass
class Request:
    name: str
    prompt: list[int]
    output: int
    computed: int = 0
    tokens: list[int] = field(default_factory=list)


class Engine:
    def __init__(self) -> None:
        self.policy = PhasePolicy(InterleaveOptions(decode_interleave_prefill_steps=2))
        self.rows = LaneRows(lanes=1, per_lane=ROWS)
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def step(self) -> Phase:
        chunks = sum(r.computed < len(r.prompt) for r in self.running)
        waiting = len(self.waiting) if len(self.running) < ROWS else 0
        return self.policy.step(Demand(waiting, chunks, len(self.running) - chunks), self.attempt).phase

    def attempt(self, permit: Pass) -> Outcome:
        work = {Phase.PREFILL: self.prefill, Phase.DECODE: self.decode, Phase.EMPTY: lambda: 0}
        return Outcome(work[permit.phase]())

    def prefill(self) -> int:
        while self.waiting and len(self.running) < ROWS:
            self.running.append(self.waiting.pop(0))
            self.rows.assign(self.running[-1].name, lane=0)
        request = next(r for r in self.running if r.computed < len(r.prompt))
        count = min(CHUNK, len(request.prompt) - request.computed)
        request.computed += count  # prefill_forward(...) goes here
        if request.computed == len(request.prompt):
            request.tokens.append(sum(request.prompt) % 100)
        return count

    def decode(self) -> int:
        batch = [r for r in self.running if r.tokens]
        for request in batch:  # decode_forward(...) for all rows at once goes here
            request.tokens.append((request.tokens[-1] * 7 + 1) % 100)
            if len(request.tokens) >= request.output:
                print(f"{request.name} row {self.rows.release(request.name)}: {request.tokens}")
                self.running.remove(request)
        return len(batch)


if __name__ == "__main__":
    engine = Engine()
    engine.waiting = [Request(f"r{i}", list(range(5 + 6 * i)), 5) for i in range(6)]
    while engine.waiting or engine.running:
        print(engine.step().value)
