import os, sys
import torch
from notice import END, ENDED, Notice

CHECKPOINT, STEPS = "/data/state.pt", 10_000

notice, first = Notice(), 0
model = torch.nn.Linear(8, 1)
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
    if (due := notice.due()) or step + 1 == STEPS:
        state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, CHECKPOINT + ".new")
        os.replace(CHECKPOINT + ".new", CHECKPOINT)  # never half a checkpoint
        notice.saved()
    if due == END:
        sys.exit(ENDED)
