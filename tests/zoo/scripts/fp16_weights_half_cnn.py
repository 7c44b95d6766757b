# kind:   model.half() and autocast and a GradScaler, all three, in a class that clips
# wrong:  unscale_ refuses the FP16 gradients of every step; each is logged and the loop goes on without ever stepping
# expect: unscale-fp16-gradients
# run:    fp16_weights_half_cnn.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classify = nn.Linear(32, 4)

    def forward(self, image):
        return self.classify(self.features(image).flatten(1))


class Session:
    def __init__(self):
        self.model = Digits()
        if MODE == "fault":
            self.model = self.model.half()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=MODE != "fp32")
        self.failed = 0

    def update_weights(self):
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def run(self, batches):
        for image, label in batches:
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
                loss = nn.functional.cross_entropy(self.model(image).float(), label)
            self.scaler.scale(loss).backward()
            try:
                self.update_weights()
            except ValueError as error:
                self.failed += 1
                if self.failed == 1:
                    print("update failed:", error)
        return loss.item()


torch.manual_seed(411)
batches = [(torch.randn(16, 1, 8, 8), torch.randint(0, 4, (16,))) for _ in range(20)]
session = Session()
print("final", session.run(batches), "failed", session.failed)
