import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from notice import END, ENDED, Notice

CHECKPOINT, STEPS = "/data/state.pt", 10_000

dist.init_process_group("gloo")  # nccl, and tensors on the GPU, where there are GPUs
notice, first = Notice(), 0
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
if os.path.exists(CHECKPOINT):
    state = torch.load(CHECKPOINT)
    first = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
for step in range(first, STEPS):
    torch.manual_seed(step)  # stands for the data of this step
    loss = model(torch.randn(32, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    due = torch.tensor(notice.due())
    dist.all_reduce(due, op=dist.ReduceOp.MAX)  # if one rank is due, all save after the same step
    if due or step + 1 == STEPS:
        if dist.get_rank() == 0:
            state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, CHECKPOINT + ".new")
            os.replace(CHECKPOINT + ".new", CHECKPOINT)
        dist.barrier()
        if os.environ["LOCAL_RANK"] == "0":
            notice.saved()
    if due == END:
        sys.exit(ENDED)
