import sys, tempfile, time, traceback
sys.path.insert(0,"tests")
import headrace
from views.test_replay import VIEWS, _time
from replaying import *
d=tempfile.mkdtemp()
db=headrace.connect(d, partitions=2, continuous=False)
db.sql("CREATE STREAM s (k INT, x BIGINT, at TIMESTAMP)")
db.sql("CREATE TABLE t (id INT, k INT, x BIGINT, PRIMARY KEY (id))")
db.sql("CREATE TABLE g (k INT, name STRING, PRIMARY KEY (k))")
class R:
    def insert(self,n,rows): db.insert(n,rows)
def write(n):
    hours = [f"2026-01-01 0{i % 3}:30:00" for i in range(6)]
    rows = [(1 + (i + n) % 4, i - 1, at) for i, at in enumerate(hours)]
    db.insert("s", [(k, x, _time(at)) for k, x, at in rows])
    db.insert("t", [(i + n, 1 + i % 4, (7 * i + n) % 5) for i in range(6)])
    db.insert("g", [(k, "ab"[k % 2]) for k in range(1 + n % 2, 4)])
write(0); write(3); db.sql("DELETE FROM g WHERE k = 2"); db.flush()
only=sys.argv[1:]
for name,(q,where) in VIEWS.items():
    if only and name not in only: continue
    try:
        t=time.time()
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {q}")
        t1=time.time()
        plan=db.parts.replays.plan(view_named(db,name),Slice(where))
        before=stored(db,name)
        gone=emptied(db,name,where)
        t2=time.time()
        done=replay(db,name,where)
        require_as_before(before,stored(db,name))
        print("OK ",name,gone,done.changed,done.state,done.read,done.whole,done.how,plan.reasons, [ (s.arrangement,s.condition) for s in plan.state], f"{t1-t:.1f} {time.time()-t2:.1f}",flush=True)
        db.sql(f"DROP MATERIALIZED VIEW {name}")
    except BaseException as e:
        print("BAD",name,type(e),str(e)[:3000],flush=True)
        traceback.print_exc(limit=-3)
db.close()
