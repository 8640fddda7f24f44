from quorate.backup.spark.session.classic_driver import ExecutorWatch

MASTER = "spark://127.0.0.1:7077"


def test_executors_that_never_come_are_told_within_half_a_minute_and_then_now_and_then() -> None:
    watch = ExecutorWatch(0.0, MASTER, {"spark.executor.memory": "64g"})

    told = [now_s for now_s in range(0, 200, 2) if watch.look(float(now_s), 0) is not None]

    assert told == [20, 80, 140]


def test_what_each_executor_needs_is_in_the_sentence() -> None:
    watch = ExecutorWatch(0.0, MASTER, {"spark.executor.memory": "64g", "spark.executor.cores": "8"})
    line = watch.look(25.0, 0)
    assert line is not None
    assert line.startswith(f"no executor for 25 s: {MASTER} has given none.")
    assert "spark.executor.memory=64g and spark.executor.cores=8" in line
    default = ExecutorWatch(0.0, MASTER, {}).look(25.0, 0)
    assert default is not None
    assert "spark.executor.memory=1g:" in default


def test_job_that_has_executors_is_not_talked_about_until_it_loses_all_of_them() -> None:
    watch = ExecutorWatch(0.0, MASTER, {})
    assert all(watch.look(float(now_s), 1) is None for now_s in range(0, 300, 2))
    assert watch.look(310.0, 0) is None
    assert watch.look(319.0, 0) is not None
