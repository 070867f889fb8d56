"""The kinds that create pods: the fields of their templates and counts, with a description for the documentation."""

from typing import Final

from webhook.core.model.policy import PodPath, WorkloadKind
from webhook.kube.workloads import argo, batch, kubeflow, ray, seldon, serving, spark
from webhook.kube.workloads.kind_row import JOB, NO_CONTROLLER, REPLICA_SET, STATEFUL_SET, KindTable, Row
from webhook.kube.workloads.paths import ControllerKind
from webhook.kube.workloads.trainjob import train_job

_KUBEFLOW: Final = {"training.kubeflow.org/job-name": "{name}", "training.kubeflow.org/replica-type": "{type}"}
_RAY: Final = {"ray.io/is-ray-node": "yes"}
_RAY_CLUSTER: Final = ControllerKind("ray.io/v1", "RayCluster")
_ARGO: Final = {"workflows.argoproj.io/workflow": "{name}"}
_WORKFLOW: Final = ControllerKind("argoproj.io/v1alpha1", "Workflow")
_POD: Final = (PodPath(""),)
_REPLICAS: Final = (PodPath("spec.template", ("spec.replicas",), default=1),)


def _gang(group: str, kind: str, resource: str) -> WorkloadKind:
    return WorkloadKind(group, kind, resource, is_gang=True)


def _kubeflow_v1(kind: str, resource: str, field: str) -> Row:
    counted = f"`spec.{field}.<role>`: `replicas` (1)"
    return Row(_gang("kubeflow.org", kind, resource), ("v1",), counted, kubeflow.replica_specs(field), labels=_KUBEFLOW)


BUILT_IN: Final[tuple[Row, ...]] = (
    Row(WorkloadKind("", "Pod", "pods", _POD), ("v1",), "itself", controller=NO_CONTROLLER),
    Row(
        WorkloadKind("", "ReplicationController", "replicationcontrollers", _REPLICAS),
        ("v1",),
        "`spec.replicas` (1)",
    ),
    Row(
        WorkloadKind("apps", "Deployment", "deployments", _REPLICAS),
        ("v1",),
        "`spec.replicas` (1), or the maximum of its autoscaler; an update may add `maxSurge` for a while",
        controller=REPLICA_SET,
    ),
    Row(
        WorkloadKind("apps", "StatefulSet", "statefulsets", _REPLICAS),
        ("v1",),
        "`spec.replicas` (1), or the maximum of its autoscaler",
    ),
    Row(
        WorkloadKind("apps", "ReplicaSet", "replicasets", _REPLICAS),
        ("v1",),
        "`spec.replicas` (1), or the maximum of its autoscaler",
    ),
    Row(
        WorkloadKind("apps", "DaemonSet", "daemonsets"),
        ("v1",),
        "one on every node that it may use: counted where the nodes are known",
        batch.daemon_set,
    ),
    Row(
        WorkloadKind("batch", "Job", "jobs"),
        ("v1",),
        "`spec.parallelism` (1), no more than `spec.completions`",
        batch.job,
        labels={"batch.kubernetes.io/job-name": "{name}", "job-name": "{name}"},
    ),
    Row(WorkloadKind("batch", "CronJob", "cronjobs"), ("v1",), "one run, as a Job", batch.cron_job, JOB),
    Row(
        _gang("jobset.x-k8s.io", "JobSet", "jobsets"),
        ("v1alpha2",),
        "each of `spec.replicatedJobs`: `replicas` (1) times its Job",
        batch.job_set,
        JOB,
        {"jobset.sigs.k8s.io/jobset-name": "{name}", "jobset.sigs.k8s.io/replicatedjob-name": "{role}"},
    ),
    Row(
        _gang("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets"),
        ("v1",),
        "`spec.replicas` (1) times one leader and `leaderWorkerTemplate.size` - 1 workers",
        batch.leader_worker_set,
        STATEFUL_SET,
        {"leaderworkerset.sigs.k8s.io/name": "{name}"},
    ),
    Row(
        _gang("kubeflow.org", "PyTorchJob", "pytorchjobs"),
        ("v1",),
        "`spec.pytorchReplicaSpecs.<role>`: `replicas` (1); workers with `elasticPolicy.metrics`: its `maxReplicas`",
        kubeflow.pytorch_job,
        labels=_KUBEFLOW,
    ),
    _kubeflow_v1("TFJob", "tfjobs", "tfReplicaSpecs"),
    _kubeflow_v1("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs"),
    _kubeflow_v1("PaddleJob", "paddlejobs", "paddleReplicaSpecs"),
    _kubeflow_v1("JAXJob", "jaxjobs", "jaxReplicaSpecs"),
    _kubeflow_v1("MXJob", "mxjobs", "mxReplicaSpecs"),
    Row(
        _gang("kubeflow.org", "MPIJob", "mpijobs"),
        ("v1", "v2beta1"),
        "`spec.mpiReplicaSpecs`: `Launcher.replicas` (1) and `Worker.replicas` (0)",
        kubeflow.mpi_job,
        labels={"training.kubeflow.org/job-name": "{name}"},  # those of the role differ between v1 and v2beta1
    ),
    Row(
        _gang("trainer.kubeflow.org", "TrainJob", "trainjobs"),
        ("v1alpha1",),
        "the jobs of its runtime, which must be given too; `trainer.numNodes` pods train, with `resourcesPerNode`",
        train_job,
        JOB,
        {"jobset.sigs.k8s.io/jobset-name": "{name}"},
    ),
    Row(
        WorkloadKind("kubeflow.org", "Notebook", "notebooks"),
        ("v1", "v1beta1", "v1alpha1"),
        "1, or 0 while it is stopped",
        kubeflow.notebook,
        STATEFUL_SET,
        {"notebook-name": "{name}"},
    ),
    Row(
        _gang("ray.io", "RayCluster", "rayclusters"),
        ("v1",),
        "a head, and for each group `replicas` between `minReplicas` and `maxReplicas`, times `numOfHosts` (1); "
        "with autoscaling `maxReplicas`",
        ray.ray_cluster,
        labels={**_RAY, "ray.io/cluster": "{name}"},
    ),
    Row(
        _gang("ray.io", "RayJob", "rayjobs"),
        ("v1",),
        "its RayCluster, and a submitter in mode K8sJobMode",
        ray.ray_job,
        _RAY_CLUSTER,
    ),
    Row(_gang("ray.io", "RayCronJob", "raycronjobs"), ("v1",), "one run, as a RayJob", ray.ray_cron_job, _RAY_CLUSTER),
    Row(
        _gang("ray.io", "RayService", "rayservices"),
        ("v1",),
        "its RayCluster; an upgrade runs a second one",
        ray.ray_service,
        _RAY_CLUSTER,
        _RAY,
    ),
    Row(
        _gang("batch.volcano.sh", "Job", "jobs"),
        ("v1alpha1",),
        "each of `spec.tasks`: `replicas` (1)",
        batch.volcano_job,
        labels={"volcano.sh/job-name": "{name}", "volcano.sh/task-spec": "{role}"},
    ),
    Row(
        _gang("workload.codeflare.dev", "AppWrapper", "appwrappers"),
        ("v1beta2",),
        "those of the objects in `spec.components`",
        batch.app_wrapper,
        makes_objects=True,
    ),
    Row(
        WorkloadKind("argoproj.io", "Workflow", "workflows"),
        ("v1alpha1",),
        "[the moment with the most devices](#argo-workflows); a WorkflowTemplate that it names must be given too",
        argo.workflow,
        labels=_ARGO,
    ),
    Row(
        WorkloadKind("argoproj.io", "CronWorkflow", "cronworkflows"),
        ("v1alpha1",),
        "one run, as a Workflow",
        argo.cron_workflow,
        _WORKFLOW,
    ),
    Row(
        WorkloadKind("argoproj.io", "Rollout", "rollouts"),
        ("v1alpha1",),
        "`spec.replicas` (1), or the maximum of its autoscaler; an update by blueGreen runs as many again for a while; "
        "what its `workloadRef` names must be given too",
        argo.rollout,
        REPLICA_SET,
    ),
    Row(
        WorkloadKind("sparkoperator.k8s.io", "SparkApplication", "sparkapplications"),
        ("v1beta2",),
        "a driver, and `executor.instances` (1); with dynamic allocation `maxExecutors`",
        spark.spark_application,
        labels={"sparkoperator.k8s.io/app-name": "{name}", "spark-role": "{type}"},
    ),
    Row(
        WorkloadKind("sparkoperator.k8s.io", "ScheduledSparkApplication", "scheduledsparkapplications"),
        ("v1beta2",),
        "one run, as a SparkApplication",
        spark.scheduled_spark_application,
        labels={"spark-role": "{type}"},
    ),
    Row(
        WorkloadKind("serving.knative.dev", "Service", "services"),
        ("v1",),
        "annotation `autoscaling.knative.dev/max-scale` of the template",
        serving.knative_service,
        REPLICA_SET,
        {"serving.knative.dev/service": "{name}"},
    ),
    Row(
        WorkloadKind("serving.kserve.io", "InferenceService", "inferenceservices"),
        ("v1beta1",),
        "each component: `maxReplicas`, or in mode Standard `minReplicas` (1); a model's runtime must be given too",
        serving.inference_service,
        REPLICA_SET,
        {"serving.kserve.io/inferenceservice": "{name}", "component": "{role}"},
    ),
    Row(
        WorkloadKind("serving.kserve.io", "LLMInferenceService", "llminferenceservices"),
        ("v1alpha1", "v1alpha2"),
        "`spec.replicas` (1) and `spec.prefill.replicas` (1); with `worker` times the pods that `parallelism` makes",
        serving.llm_inference_service,
        REPLICA_SET,
    ),
    Row(
        WorkloadKind("apps.nvidia.com", "NIMService", "nimservices"),
        ("v1alpha1",),
        "`spec.replicas` (1), or `spec.scale.hpa.maxReplicas` where `scale` is enabled; times `spec.multiNode.size`",
        serving.nim_service,
        REPLICA_SET,
        {"app": "{name}"},
    ),
    Row(
        WorkloadKind("machinelearning.seldon.io", "SeldonDeployment", "seldondeployments"),
        ("v1",),
        "each of `componentSpecs`: `replicas` of its own, the predictor or the whole (1), or its autoscaler's maximum",
        seldon.seldon_deployment,
        REPLICA_SET,
        {"seldon-deployment-id": "{name}"},
    ),
    Row(
        WorkloadKind("mlops.seldon.io", "Server", "servers"),
        ("v1alpha1",),
        "`spec.replicas` (1), or `spec.maxReplicas`; its ServerConfig must be given too",
        seldon.server,
        STATEFUL_SET,
    ),
    Row(WorkloadKind("mlops.seldon.io", "Model", "models"), ("v1alpha1",), "none: a Server loads it", seldon.model),
)


def kind_table(added: tuple[WorkloadKind, ...] = ()) -> KindTable:
    """Return a table of the built-in kinds and those of the policy, which take precedence."""
    rows = {(row.kind.group, row.kind.kind): row for row in BUILT_IN}
    return rows | {(kind.group, kind.kind): Row(kind, ("*",), "as policy says") for kind in added}
