"""The harm that is done to a world, drawn from a seed.

Each harm is a function of the world and its own dice. It returns when it has been done, and what it took away
is there again. Harms overlap: a link is cut while a process is down. One process suffers one at a time.
"""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from harness.conductor import PATIENCE, Member, NeverHappened, Plan, World, eventually
from harness.judge import Fault, read_log
from harness.proxy import Lane


async def kill(world: World, dice: random.Random) -> None:
    """kill -9, and another life after a while."""
    member = world.members[dice.choice(world.plan.members)]
    async with member.in_use:
        world.check_alive(member)
        member.kill()
        await asyncio.sleep(dice.choice((0, 0.1, 0.5)))
        await world.start(member)


async def die(world: World, dice: random.Random) -> None:
    """kill -9 by itself, right after it has written down that something was confirmed, or before it asks."""
    member = world.members[dice.choice(world.plan.members)]
    async with member.in_use:
        world.check_alive(member)
        process = member.process
        assert process is not None
        member.tell(f"die after {dice.choice(('sent', 'acked', 'got', 'ask', 'acking'))}")
        await eventually(lambda: process.poll() is not None, f"{member.name} kills itself")
        member.process = None
        await world.start(member)


async def restart(world: World, dice: random.Random) -> None:
    member = world.members[dice.choice(world.plan.members)]
    async with member.in_use:
        await world.close(member)
        await world.start(member)


async def stop(world: World, dice: random.Random) -> None:
    """SIGSTOP for so long that its peers may give it up; SIGCONT, or kill -9 while it is stopped."""
    member = world.members[dice.choice(world.plan.members)]
    async with member.in_use:
        world.check_alive(member)
        world.stop(member)
        await asyncio.sleep(dice.choice((0.2, 1, 4)))
        if dice.random() < 0.7:
            world.go_on(member)
        else:
            member.kill()
            await world.start(member)


async def fork(world: World, dice: random.Random) -> None:
    """The process forks; its child ends like any program, or closes the node that it inherited."""
    member = world.members[dice.choice(world.plan.members)]
    async with member.in_use:
        world.check_alive(member)
        since = len(member.records())
        member.tell(dice.choice(("fork exit", "fork close")))
        await eventually(lambda: member.find("forked", since), f"the fork of {member.name} ends")
        if dice.random() < 0.5:  # what the fork did to the journal shows when that is read again
            member.kill()
            await world.start(member)


async def second_process(world: World, dice: random.Random) -> None:
    """Another process on the same journal: it must not start."""
    member = world.members[dice.choice(world.plan.members)]
    async with member.in_use:
        world.check_alive(member)
        log = world.directory / f"{member.name}.second.log"
        log.write_bytes(b"")
        process = world.spawn(member, log=log)
        try:
            await eventually(
                lambda: process.poll() is not None or b'"running"' in log.read_bytes(), "it ends"
            )
            end = read_log(log)[-1]
            if end["what"] != "stopped" or "is in use by another process" not in end["why"]:
                world.faults.append(Fault("two owners", f"of {member.journal.name}; the second: {end}"))
        finally:
            process.kill()
            process.wait()


async def old_copy(world: World, dice: random.Random) -> None:
    """A copy of the journal is put back after every link has gone on without it. The node must stop; with the
    newest one put back it goes on."""
    async with _AllInUse(world), _OldCopy(world, dice) as member:
        await world.start_old(member)
        await world.see_it_stop(member)


async def lonely_copy(world: World, dice: random.Random) -> None:
    """The same while all who know better are down. It may live for a while then, more than once, and number
    as much as they have; it must stop when they are back, and what it asked for must reach nobody."""
    async with _AllInUse(world), _OldCopy(world, dice) as member:
        others = [other for other in world.members.values() if other is not member]
        for other in others:
            other.kill()
        for _ in range(dice.randint(1, 2)):
            await world.start_old(member)
            await asyncio.sleep(dice.uniform(0.2, 1))
            member.kill()
        await world.start_old(member)
        await asyncio.gather(*(world.start(other) for other in others))
        await world.see_it_stop(member)


async def away(world: World, dice: random.Random) -> None:
    """A process is down until another one has parked what is for it, which may be killed then too."""
    async with _AllInUse(world):
        member = world.members[dice.choice(world.plan.members)]
        others = [other for other in world.members.values() if other is not member]
        world.check_alive(member)
        member.kill()
        parking = await _parking(world, others)
        if dice.random() < 0.5:
            parking.kill()
            await world.start(parking)
        await world.start(member)


async def _parking(world: World, members: Sequence[Member]) -> Member:
    """One of these, as soon as it has frames on disk."""
    for _ in range(600):
        for member in members:
            world.check_alive(member)
            since = len(member.records())
            member.tell("report")
            await eventually(lambda m=member, n=since: m.find("report", n), f"{member.name} reports")
            if member.find("report", since)["parked"]:
                return member
        await asyncio.sleep(0.1)
    raise NeverHappened("nobody has parked anything, in a minute")


class _OldCopy:
    """Within: a process is down that has a copy of its journal which everybody has heard more than. After
    that it runs again, on the newest one."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self._world = world
        self._member = world.members[dice.choice(world.plan.members)]
        name = self._member.name
        self._copy, self._newest = (world.directory / f"{name}.{what}" for what in ("copy", "newest"))

    async def __aenter__(self) -> Member:
        world, member = self._world, self._member
        others = [other for other in world.members.values() if other is not member]
        world.check_alive(member)
        world.stop(member)
        self._copy.mkdir()
        for path in member.journal_files():
            shutil.copy2(path, self._copy / path.name)
        world.go_on(member)
        since = len(member.records())
        await eventually(
            lambda: all(other.keys("got") & member.keys("ask", since) for other in others),
            f"everybody hears of {member.name}",
        )
        member.kill()
        member.move_journal(self._newest)
        member.restore_journal(self._copy)
        return member

    async def __aexit__(self, error: object, *_: object) -> None:
        if error is not None:
            return
        self._member.restore_journal(self._newest)
        shutil.rmtree(self._copy)
        shutil.rmtree(self._newest)
        await self._world.start(self._member)


class _AllInUse:
    """Nobody is killed or stopped by others meanwhile."""

    def __init__(self, world: World) -> None:
        self._members = sorted(world.members.values(), key=lambda member: member.name)

    async def __aenter__(self) -> None:
        for member in self._members:
            await member.in_use.acquire()

    async def __aexit__(self, *_: object) -> None:
        for member in self._members:
            member.in_use.release()


async def kill_broker(world: World, dice: random.Random) -> None:
    assert world.broker is not None
    world.broker.kill()
    await asyncio.sleep(dice.choice((0, 0.5)))
    await world.broker.start()


def _lane(world: World, dice: random.Random) -> Lane:
    return world.lanes[dice.choice(sorted(world.lanes))]


async def on_the_way(kind: str, world: World, dice: random.Random) -> None:
    """A connection is cut in mid-frame, or its bytes are flipped, repeated, left out or late."""
    async with asyncio.timeout(PATIENCE):
        await _lane(world, dice).harm(kind, dice)


async def replay(world: World, dice: random.Random) -> None:
    """What somebody said in an earlier connection is said again, by somebody who recorded it."""
    async with asyncio.timeout(PATIENCE):
        while not await _lane(world, dice).replay(dice):
            await asyncio.sleep(0.1)


Doing = Callable[[World, random.Random], Coroutine[None, None, None]]
HARMS: dict[str, tuple[Doing, int]] = {
    "kill": (kill, 14),
    "die": (die, 10),
    "restart": (restart, 3),
    "stop": (stop, 8),
    "fork": (fork, 8),
    "second process": (second_process, 4),
    "old copy": (old_copy, 4),
    "lonely copy": (lonely_copy, 3),
    "cut": (partial(on_the_way, "cut"), 16),
    "flip": (partial(on_the_way, "flip"), 12),
    "repeat": (partial(on_the_way, "repeat"), 5),
    "drop": (partial(on_the_way, "drop"), 3),
    "stall": (partial(on_the_way, "stall"), 5),
    "replay": (replay, 8),
}
"""What can be done, and how often among a hundred."""

OF_A_BROKER: dict[str, tuple[Doing, int]] = {"kill broker": (kill_broker, 4)}
OF_PARKING: dict[str, tuple[Doing, int]] = {"away": (away, 12)}
AT_ONCE = 3


def kinds_of(plan: Plan) -> dict[str, tuple[Doing, int]]:
    """What can be done to a world of this plan."""
    return HARMS | (OF_A_BROKER if plan.has_broker else {}) | (OF_PARKING if plan.is_parking else {})


def draw(plan: Plan, seed: int, count: int) -> list[str]:
    """The names of `count` harms, in an order that follows from the seed: each kind once, others by share."""
    dice = random.Random(f"{seed} {plan.name}")
    kinds = kinds_of(plan)
    names = list(kinds) + dice.choices(
        list(kinds), [share for _, share in kinds.values()], k=count - len(kinds)
    )
    dice.shuffle(names)
    return names


async def do_harm(world: World, names: Sequence[str]) -> Counter[str]:
    """All of these, a few at once, with dice that follow from the seed; how many of each kind were done."""
    done: Counter[str] = Counter()
    places = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, dice: random.Random) -> None:
        harm, _ = kinds_of(world.plan)[name]
        try:
            await harm(world, dice)
            done[name] += 1
        finally:
            places.release()

    async with asyncio.TaskGroup() as tasks:
        for number, name in enumerate(names):
            dice = random.Random(f"{world.seed} {name} {number}")
            await places.acquire()
            tasks.create_task(one(name, dice))
            await asyncio.sleep(dice.uniform(0, 0.15))
    return done
