import os, tempfile
import ray.train, torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

STORAGE, STEPS, WORKERS = "/data/ray", 10_000, 2


def train():
    model, first, is_saved = prepare_model(torch.nn.Linear(8, 1)), 0, False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        first = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(first, STEPS):
        torch.manual_seed(step)  # stands for the data of this step
        loss = model(torch.randn(32, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        is_announced = ray.train.get_preemption_info() is not None  # every worker asks after every step
        if (is_announced and not is_saved) or step + 1 == STEPS:
            state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            with tempfile.TemporaryDirectory() as folder:
                torch.save(state, os.path.join(folder, "state.pt"))
                is_first = ray.train.get_context().get_world_rank() == 0
                ray.train.report({"step": step + 1}, checkpoint=Checkpoint.from_directory(folder) if is_first else None)
            is_saved = True


run = RunConfig(name="train", storage_path=STORAGE, failure_config=FailureConfig(max_preemption_failures=-1))
TorchTrainer(train, scaling_config=ScalingConfig(num_workers=WORKERS), run_config=run).fit()
